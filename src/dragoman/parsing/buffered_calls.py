"""Emits calls only when they are complete, for clients that cannot take back a part of a call.

Calls in one list, `[first(), second()]`, are emitted when the list is complete.
"""

from msgspec.structs import replace

from dragoman.core.events import (
    AnyEvent,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)


class BufferedCalls:
    """Buffers each call until it ends; an incomplete call becomes a warning with its text."""

    def __init__(self) -> None:
        self._start: ToolCallStart | None = None
        self._arguments: list[str] = []
        self._complete: list[tuple[ToolCallStart, str, ToolCallEnd]] = []
        self._in_list = False
        self._calls = 0

    def feed(self, event: AnyEvent) -> list[AnyEvent]:
        """Returns the events that can be emitted after this event."""
        match event:
            case ToolCallStart():
                self._start = event
                return []
            case ToolCallDelta(_, text):
                self._arguments.append(text)
                return []
            case ToolCallEnd():
                self._end(event)
                return [] if self._in_list else self._drain_complete()
            case ToolCallIncomplete(_, raw):
                self._start, self._arguments = None, []
                return [Notice("incomplete_call", "dropped an incomplete call", raw)]
            case TextDelta() | ReasoningDelta():  # only possible after a list
                return [*self.set_in_list(open=False), event]
            case _:
                return [event]

    def set_in_list(self, open: bool) -> list[AnyEvent]:
        """Returns the events that can be emitted after a list has begun or ended."""
        self._in_list = open
        return self._drain_complete()

    def close(self) -> list[AnyEvent]:
        """Returns warnings for the calls of a list that never ended; call it once, last."""
        message = "dropped a call of {}, because the list of calls is incomplete"
        return [Notice("incomplete_call", message.format(s.name), arguments) for s, arguments, _ in self._complete]

    def _end(self, end: ToolCallEnd) -> None:
        assert self._start is not None, "an end without a start"
        self._complete.append((end.named(self._start), "".join(self._arguments), end))
        self._start, self._arguments = None, []

    def _drain_complete(self) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for start, arguments, end in self._complete:
            index = self._calls
            out += [ToolCallStart(index, start.id, start.name), ToolCallDelta(index, arguments)]
            out.append(replace(end, index=index))
            self._calls += 1
        self._complete.clear()
        return out
