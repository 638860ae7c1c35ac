"""Asking the model once more: what it answered, what was wrong with it, as a turn of the conversation that nobody sees.

    assistant   get_weather({"days": "three"})
    tool        days: expected an integer, got "three". The call was not run. Call get_weather again, …

So it is told in its own format, or by its API, as of any tool that failed. What cannot be a call there, as its
arguments are no JSON, and a call that is missing, are told in words.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from dragoman.core.collect import collect
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.values import Message, Opaque, Part, Request, Text, ToolCall, ToolResult
from dragoman.guard import words

Fault: TypeAlias = Literal["invalid", "unread", "unknown", "other", "looping"]


class Failed(NamedTuple):
    """A call that may not go out as it is."""

    fault: Fault
    why: str
    """For the model."""
    id: str
    name: str
    arguments: str
    events: tuple[AnyEvent, ...]
    """Of it, as they came."""


class Again(NamedTuple):
    """What the model is asked."""

    request: Request
    why: str
    """For people."""


class Made(NamedTuple):
    """A call of the second answer."""

    name: str
    arguments: str
    events: tuple[AnyEvent, ...]


def asked(request: Request, seen: Sequence[AnyEvent], failed: Sequence[Failed], most_tokens: int) -> Again:
    """The request with one turn more; `seen` is the answer as it came."""
    readable = {each.id: each for each in failed if each.fault != "unread"}
    said = collect([Start("", "", 0), *seen, Finish("stop")]).parts
    parts: list[Part] = [part for part in said if not isinstance(part, ToolCall | Opaque)]
    parts += [ToolCall(each.id, each.name, each.arguments) for each in readable.values()]
    told: list[Message] = []
    if readable:
        results = (ToolResult(id, (Text(each.why),), is_error=True) for id, each in readable.items())
        told = [Message("tool", tuple(results))]
    else:
        parts += [Text(_raw(each)) for each in failed if not _stands_in(each, parts)]
        told = [Message("user", (Text(failed[0].why if failed else words.other(request.tool_choice)),))]
    turns = (*([Message("assistant", tuple(parts))] if parts else ()), *told)
    tokens = min(request.max_tokens or most_tokens, most_tokens)
    why = f"{failed[0].name}: {failed[0].why}" if failed else words.missed(request.tool_choice)
    return Again(replace(request, messages=(*request.messages, *turns), max_tokens=tokens), why)


def _raw(failed: Failed) -> str:
    return f"{failed.name} {failed.arguments}"


def _stands_in(failed: Failed, parts: Sequence[Part]) -> bool:
    """Whether what the model wrote is among its words, as readers leave it there."""
    return any(isinstance(part, Text) and failed.arguments and failed.arguments in part.text for part in parts)


def calls(events: Iterable[AnyEvent]) -> list[Made]:
    """The calls among these that are whole, as those of a second answer."""
    found: list[Made] = []
    open: list[AnyEvent] = []
    for event in events:
        match event:
            case ToolCallStart():
                open = [event]
            case ToolCallDelta():
                open.append(event)
            case ToolCallEnd():
                open.append(replace(event, asked_again=True))
                found.append(_made(open))
            case ToolCallIncomplete():
                open = []
            case _:
                pass
    return found


def _made(events: Sequence[AnyEvent]) -> Made:
    name = next(event.name for event in events if isinstance(event, ToolCallStart))
    arguments = "".join(event.text for event in events if isinstance(event, ToolCallDelta))
    return Made(name, arguments, tuple(events))
