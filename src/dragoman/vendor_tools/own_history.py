"""Turns what Dragoman's own tool runs left in a conversation into text, for servers that run vendor tools themselves.

    server_tool_use, web_search_tool_result with Dragoman's `encrypted_content`   →  one text with the result
    web_search_call, reasoning with Dragoman's `encrypted_content`                →  one text with the result
    citations with Dragoman's `encrypted_index`                                   →  left out

The vendor's server rejects opaque values that it did not write. Its own calls and results stay as they are.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.core.messages import Message, Part, Reasoning, Request, Text, ToolCall, ToolResult, UnknownPart, part_text
from dragoman.core.response_details import CITATIONS
from dragoman.redaction.opaque_text import OPAQUE_PREFIX, is_opaque

AsFunctions: TypeAlias = Callable[[Request], tuple[Message, ...]]
_PREFIX: Final = OPAQUE_PREFIX.encode()


def as_text(request: Request, as_functions: AsFunctions) -> tuple[Message, ...]:
    """Returns the messages without opaque values of Dragoman; the same objects where there are none.

    Args:
        request: The request with the conversation.
        as_functions: Returns messages with calls of vendor tools as calls of functions, as the client's API reads them.
    """
    return tuple(_as_text(message, request, as_functions) for message in without_citations(request.messages))


def without_citations(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the messages without citations that Dragoman wrote; the same objects where there are none."""
    return tuple(
        replace(message, parts=tuple(map(_without_citations, message.parts)))
        if any(map(_has_citations, message.parts))
        else message
        for message in messages
    )


def _as_text(message: Message, request: Request, as_functions: AsFunctions) -> Message:
    if not any(map(_is_result, message.parts)):
        return message
    parts: list[Part] = []
    for part in message.parts:
        if not _is_result(part):
            parts.append(part)
            continue
        run = [parts.pop(), part] if parts and isinstance(parts[-1], UnknownPart) else [part]
        as_calls = as_functions(replace(request, messages=(Message("assistant", tuple(run)),)))
        parts += _texts([inner for each in as_calls for inner in each.parts])
    return replace(message, parts=tuple(parts))


def _texts(parts: Sequence[Part]) -> list[Part]:
    """Returns the call and the result as one text."""
    calls = [f"[Result of {part.name} {part.arguments}]" for part in parts if isinstance(part, ToolCall)]
    results = [part_text(inner) for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    return [Text("\n".join([*calls, *results]))] if calls and results else []


def _is_result(part: Part) -> bool:
    if isinstance(part, Reasoning):
        return is_opaque(part.signature)
    return isinstance(part, UnknownPart) and _PREFIX in bytes(part.raw)


def _has_citations(part: Part) -> bool:
    return isinstance(part, Text) and _PREFIX in bytes(part.extra.get(CITATIONS, b""))


def _without_citations(part: Part) -> Part:
    if not isinstance(part, Text) or not _has_citations(part):
        return part
    return replace(part, extra={name: raw for name, raw in part.extra.items() if name != CITATIONS})
