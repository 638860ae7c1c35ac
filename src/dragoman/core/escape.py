"""Keeps text that the model did not write from being read as markup that means something.

A web page, a file or a user may hold `</tool_call>` or `<|im_end|>`. In a prompt the first character of such
a marker becomes its character reference (`&lt;/tool_call>`): a model still understands it, and neither the
model's tokenizer nor its training takes it for the real thing. Only exact markers are touched, so ordinary
text and code pass unchanged. JSON is not touched but in how it is written (`\\u003c/tool_call>`).
"""

import re
from collections.abc import Collection
from functools import cache

import msgspec

from dragoman.core.values import (
    Document,
    JsonText,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)

_REFERENCE = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def neutralise(text: str, markers: Collection[str]) -> str:
    """The text with every marker in it made harmless."""
    return _pattern(tuple(markers)).sub(_reference, text) if markers else text


def neutralise_json(text: JsonText, markers: Collection[str]) -> JsonText:
    """The same JSON value, written without any marker."""
    return _pattern(tuple(markers)).sub(_json_escape, text) if markers else text


def neutralise_request(request: Request, markers: Collection[str], *, own_words: bool = False) -> Request:
    """The request with markers made harmless in all that the model did not write: every turn but its own.

    `own_words`: in its own turns too.
    """
    messages = (m if m.role == "assistant" and not own_words else _message(m, markers) for m in request.messages)
    tools = (_tool(t, markers) for t in request.tools)
    return msgspec.structs.replace(request, messages=tuple(messages), tools=tuple(tools))


def _tool(tool: Tool, markers: Collection[str]) -> Tool:
    description, parameters = neutralise(tool.description, markers), neutralise_json(tool.parameters, markers)
    return msgspec.structs.replace(tool, description=description, parameters=parameters)


def _message(message: Message, markers: Collection[str]) -> Message:
    return msgspec.structs.replace(message, parts=tuple(_part(p, markers) for p in message.parts))


def _part(part: Part, markers: Collection[str]) -> Part:
    match part:
        case Text(text) | Reasoning(text) | Refusal(text):
            return msgspec.structs.replace(part, text=neutralise(text, markers))
        case Document(source, title):
            source = msgspec.structs.replace(source, text=neutralise(source.text, markers))
            return msgspec.structs.replace(part, source=source, title=neutralise(title, markers))
        case ToolCall(arguments=arguments):
            return msgspec.structs.replace(part, arguments=neutralise_json(arguments, markers))
        case ToolResult(parts=parts):
            return msgspec.structs.replace(part, parts=tuple(_part(p, markers) for p in parts))
        case Opaque(type=kind):
            return msgspec.structs.replace(part, type=neutralise(kind, markers))
        case _:
            return part


@cache
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    # Matches the first character only, so that a marker is found that begins inside another one.
    return re.compile(f"(?=(?:{'|'.join(map(re.escape, markers))}))[\\s\\S]")


def _reference(match: re.Match[str]) -> str:
    return _REFERENCE.get(match[0], f"&#{ord(match[0])};")


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
