"""Limits on the number of calls in one response.

A small model that must call a tool continues with calls that the user never requested: Qwen2.5-Coder 1.5B made 36
calls for "Weather in Madrid?" (2026-11). So if a call is required, the limit is one, unless the client states that it
accepts several.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import (
    CALL_EVENTS,
    AnyEvent,
    Notice,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import Request
from dragoman.core.stage import EventStage

MAX_CALLS: Final = 32
"""Maximum calls of one response, unless the settings contain another number."""


def limit_to_one_call(request: Request) -> Request:
    """Returns the request, limited to one call if one is required and the client does not accept several."""
    choice = request.tool_choice
    if choice.mode not in ("required", "named") or request.accepts_parallel_calls or not choice.parallel_tool_calls:
        return request
    return replace(request, tool_choice=replace(choice, parallel_tool_calls=False))


class FirstCallOnly(EventStage):
    """Passes the first call only: some servers ignore the request for a single call."""

    handles = CALL_EVENTS

    def __init__(self) -> None:
        self._dropped = ""
        """Name and arguments of the open call that is dropped."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events; a warning takes the place of each further call."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case ToolCallStart(index, name=name) if index > 0:
                    self._dropped = f"{name} "
                case ToolCallDelta(index, text) if index > 0:
                    self._dropped += text
                case ToolCallEnd(index) | ToolCallIncomplete(index) if index > 0:
                    message = "a second call was dropped: the request allows only one"
                    out.append(Notice("extra_call_dropped", message, self._dropped))
                case _:
                    out.append(event)
        return out
