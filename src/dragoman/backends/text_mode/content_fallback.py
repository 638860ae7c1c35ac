"""Turns message parts that only one API has into text, with warnings about what is lost."""

from collections.abc import Iterator

import msgspec

from dragoman.core.errors import quote
from dragoman.core.events import Notice
from dragoman.core.messages import Message, Part, Reasoning, Request, ResultPart, Role, Text, ToolResult, UnknownPart
from dragoman.prompting.deferred_tools import resolve_deferred_tools
from dragoman.wire.translation import MEDIA_TYPES, client_run_tools, json_text_notice, notices_by_name


def with_text_fallbacks(request: Request) -> Request:
    """Returns the request without parts that a model that reads only text would not see.

    An unknown part is shown as its JSON. In an assistant turn it was written by a vendor's model, not by the client: it
    stays, to be shown by its name.

    Raises:
        UnsupportedError: a tool that its vendor runs must be called, or nothing else is offered.
    """
    client_run_tools(request, "this model")
    request = resolve_deferred_tools(request)
    return msgspec.structs.replace(request, messages=tuple(map(_message, request.messages)))


def _message(message: Message) -> Message:
    if not any(isinstance(p, UnknownPart | ToolResult) for p in message.parts):
        return message
    return msgspec.structs.replace(message, parts=tuple(_part(p, message.role) for p in message.parts))


def _part(part: Part, role: Role) -> Part:
    match part:
        case UnknownPart() if role != "assistant":
            return _as_text(part)
        case ToolResult(parts=parts):
            return msgspec.structs.replace(part, parts=tuple(map(_as_text, parts)))
        case _:
            return part


def _as_text(part: UnknownPart | ResultPart) -> ResultPart:
    """Returns an unknown part as text, which is its JSON."""
    if not isinstance(part, UnknownPart) or part.type in MEDIA_TYPES:
        return part
    return Text(bytes(part.raw).decode())


def _is_result(message: Message) -> bool:
    return all(isinstance(part, ToolResult) for part in message.parts)


def _unknown(message: Message) -> Iterator[UnknownPart]:
    for part in message.parts:
        for each in part.parts if isinstance(part, ToolResult) else (part,):
            if isinstance(each, UnknownPart) and message.role != "assistant" and each.type not in MEDIA_TYPES:
                yield each


def fallback_warnings(request: Request) -> tuple[Notice, ...]:
    """Returns what a model that only reads text is not shown of a request, or is shown in another way."""
    dropped = {tool.kind: f"tool {quote(tool.kind)}" for tool in request.tools if tool.kind != "function"}
    adapted: dict[str, str] = {}
    asks = (n for n, message in enumerate(request.messages) if message.role == "user" and not _is_result(message))
    last = max(asks, default=-1)
    for n, message in enumerate(request.messages):
        if any(isinstance(part, Reasoning) and (n < last or not part.text) for part in message.parts):
            dropped.setdefault("reasoning", "reasoning of past turns")
        for part in _unknown(message):
            adapted.setdefault(*json_text_notice(part))
    return (
        *notices_by_name("content_dropped", "the model is not shown: {}", dropped),
        *notices_by_name("request_adapted", "for the model: {}", adapted),
    )
