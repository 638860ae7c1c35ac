"""Keeps text that the model did not write from being read as markup that means something.

A web page, a file or a user may hold `</tool_call>` or `<|im_end|>`. In a prompt the first character of such
a marker becomes its character reference (`&lt;/tool_call>`): a model still understands it, and neither the
model's tokenizer nor its training takes it for the real thing. Only exact markers are touched, so ordinary
text and code pass unchanged.
"""

import re
from collections.abc import Collection
from functools import cache

import msgspec

from dragoman.core.values import Document, Message, Part, Request, ResultPart, Text, ToolResult

_REFERENCE = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def neutralise(text: str, markers: Collection[str]) -> str:
    """The text with every marker in it made harmless."""
    return _pattern(tuple(markers)).sub(_reference, text) if markers else text


def neutralise_request(request: Request, markers: Collection[str]) -> Request:
    """The request with markers made harmless in all that the model did not write: every turn but its own."""
    messages = tuple(m if m.role == "assistant" else _message(m, markers) for m in request.messages)
    tools = tuple(msgspec.structs.replace(t, description=neutralise(t.description, markers)) for t in request.tools)
    return msgspec.structs.replace(request, messages=messages, tools=tools)


def _message(message: Message, markers: Collection[str]) -> Message:
    return msgspec.structs.replace(message, parts=tuple(_part(p, markers) for p in message.parts))


def _part(part: Part, markers: Collection[str]) -> Part:
    if isinstance(part, ToolResult):
        return msgspec.structs.replace(part, parts=tuple(_plain(p, markers) for p in part.parts))
    return part if not isinstance(part, Text | Document) else _plain(part, markers)


def _plain(part: ResultPart, markers: Collection[str]) -> ResultPart:
    match part:
        case Text(text):
            return msgspec.structs.replace(part, text=neutralise(text, markers))
        case Document(source, title):
            source = msgspec.structs.replace(source, text=neutralise(source.text, markers))
            return msgspec.structs.replace(part, source=source, title=neutralise(title, markers))
        case _:
            return part


@cache
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(m) for m in sorted(markers, key=len, reverse=True)))


def _reference(match: re.Match[str]) -> str:
    marker = match.group()
    return _REFERENCE.get(marker[0], f"&#{ord(marker[0])};") + marker[1:]
