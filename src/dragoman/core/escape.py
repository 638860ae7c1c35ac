"""Keeps text that the model did not write from being read as markup that means something.

A web page, a file or a user may hold `</tool_call>` or `<|im_end|>`. In a prompt the first character of such
a marker becomes its character reference (`&lt;/tool_call>`): a model still understands it, and neither the
model's tokenizer nor its training takes it for the real thing. Only exact markers are touched, so ordinary
text and code pass unchanged. JSON is not touched but in how it is written (`\\u003c/tool_call>`).
"""

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import groupby

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

    Names of tools are never its own words, nor are ids of calls. `own_words`: in its own turns too.
    """
    own = _part if own_words else _labels
    messages = (_message(m, markers, own if m.role == "assistant" else _part) for m in request.messages)
    tools = (_tool(t, markers) for t in request.tools)
    choice = msgspec.structs.replace(request.tool_choice, name=neutralise(request.tool_choice.name, markers))
    return msgspec.structs.replace(request, messages=tuple(messages), tools=tuple(tools), tool_choice=choice)


def _tool(tool: Tool, markers: Collection[str]) -> Tool:
    name, description = neutralise(tool.name, markers), neutralise(tool.description, markers)
    parameters = neutralise_json(tool.parameters, markers)
    return msgspec.structs.replace(tool, name=name, description=description, parameters=parameters)


def _message(message: Message, markers: Collection[str], shown: Callable[[Part, Collection[str]], Part]) -> Message:
    written = neutralise(message.written, markers) if shown is _part else message.written
    return msgspec.structs.replace(message, parts=tuple(shown(p, markers) for p in message.parts), written=written)


def _labels(part: Part, markers: Collection[str]) -> Part:
    if not isinstance(part, ToolCall):
        return part
    id, name = neutralise(part.id, markers), neutralise(part.name, markers)
    return msgspec.structs.replace(part, id=id, name=name)


def _part(part: Part, markers: Collection[str]) -> Part:
    match part:
        case Text(text) | Reasoning(text) | Refusal(text):
            return msgspec.structs.replace(part, text=neutralise(text, markers))
        case Document(source, title):
            source = msgspec.structs.replace(source, text=neutralise(source.text, markers))
            return msgspec.structs.replace(part, source=source, title=neutralise(title, markers))
        case ToolCall(arguments=arguments):
            part = msgspec.structs.replace(part, arguments=neutralise_json(arguments, markers))
            return _labels(part, markers)
        case ToolResult(call_id, parts):
            inner = tuple(_part(p, markers) for p in parts)
            return msgspec.structs.replace(part, call_id=neutralise(call_id, markers), parts=inner)
        case Opaque(type=kind):
            return msgspec.structs.replace(part, type=neutralise(kind, markers))
        case _:
            return part


@cache
def _pattern(markers: tuple[str, ...]) -> re.Pattern[str]:
    # Matches the first character only, so that a marker is found that begins inside another one.
    return re.compile("|".join(f"{re.escape(first)}(?={_any_of(rest)})" for first, rest in _by_first(markers)))


def _any_of(words: Collection[str]) -> str:
    """A pattern of all of them as a tree: a tokenizer may have thousands of special tokens, most of them alike."""
    if "" in words:
        return ""  # whatever follows, the shortest has been found
    branches = [re.escape(first) + _any_of(rest) for first, rest in _by_first(words)]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _by_first(words: Iterable[str]) -> list[tuple[str, set[str]]]:
    return [(first, {w[1:] for w in same}) for first, same in groupby(sorted(words), lambda word: word[0])]


def _reference(match: re.Match[str]) -> str:
    return _REFERENCE.get(match[0], f"&#{ord(match[0])};")


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
