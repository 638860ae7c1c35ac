"""Drops calls that the steps do not allow now: of servers that ignore which tools they are offered."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from dragoman.core.events import (
    CALL_EVENTS,
    AnyEvent,
    Finish,
    Notice,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import Request
from dragoman.core.stage import EventStage


def call_filter(request: Request) -> "StepCallFilter | None":
    """Returns what drops calls that the steps of a restricted request do not allow; None: it is not restricted."""
    if not request.prompt_tools:
        return None
    allowed = [tool.name for tool in request.tools]
    return StepCallFilter({tool.name for tool in request.prompt_tools}.difference(allowed), allowed)


class StepCallFilter(EventStage):
    """Passes calls of the allowed tools only; a text says why there is no call if none is left."""

    handles = CALL_EVENTS | {Finish}

    def __init__(self, forbidden: Collection[str], allowed: Sequence[str]) -> None:
        """
        Args:
            forbidden: Tools of the request that may not be called now.
            allowed: Those that may be.
        """
        self._forbidden, self._allowed = forbidden, allowed
        self._index = 0
        """Index of the next call for the client."""
        self._dropped = ""
        """Name and arguments of the open call that is dropped."""
        self._names: list[str] = []
        """Tools whose calls were dropped."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events; a warning takes the place of each dropped call."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case ToolCallStart(name=name) if name in self._forbidden:
                    self._dropped = f"{name} "
                    self._names.append(name)
                case ToolCallDelta(text=text) if self._dropped:
                    self._dropped += text
                case ToolCallEnd() | ToolCallIncomplete() if self._dropped:
                    message = f"a call of {self._names[-1]} was dropped: the steps do not allow it now"
                    out.append(Notice("step_call_dropped", message, self._dropped, self._names[-1]))
                    self._dropped = ""
                case ToolCallStart() | ToolCallDelta():
                    out.append(replace(event, index=self._index) if self._names else event)
                case ToolCallEnd() | ToolCallIncomplete():
                    out.append(replace(event, index=self._index) if self._names else event)
                    self._index += 1
                case Finish("tool_calls" | "stop") if self._names and not self._index:
                    out += [TextDelta(self._reason()), replace(event, reason="stop")]
                case _:
                    out.append(event)
        return out

    def _reason(self) -> str:
        may = f"call {' or '.join(self._allowed)}" if self._allowed else "answer in words"
        return f"[The call of {self._names[-1]} was dropped: the steps of this conversation ask to {may} first.]"
