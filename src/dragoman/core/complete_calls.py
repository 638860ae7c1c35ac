"""Ensures that clients receive only calls with whole JSON; other calls become text or end the stream with an error.

A call is buffered until it is complete, or until it exceeds a limit and its arguments begin to stream. A buffered call
that turns out incomplete is emitted as text of the model. A call that breaks off after its arguments have begun to
stream cannot be revoked, so the response ends there with an error, which no client mistakes for a call.
"""

from collections.abc import Sequence, Set
from typing import Final

from msgspec.structs import replace

from dragoman.core.errors import BackendUnavailableError, quote
from dragoman.core.events import (
    ALL_EVENTS,
    CALL_EVENTS,
    AnyEvent,
    EventType,
    Failure,
    Notice,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.stage import EventStage

BUFFER_LIMIT_CHARS: Final = 4096
"""Exceeds the arguments of nearly all calls, except those that write files."""


class CompleteCallFilter(EventStage):
    """Filters the events of one response so that its calls are complete."""

    def __init__(self, buffer_limit_chars: int = BUFFER_LIMIT_CHARS) -> None:
        """Creates a filter; a call with longer arguments than `buffer_limit_chars` streams before it is complete."""
        self.handles: Set[EventType] = CALL_EVENTS
        """All events once a call has broken: its text is emitted before the next event."""
        self._buffer_limit_chars = buffer_limit_chars
        self._start: ToolCallStart | None = None
        self._pieces: list[str] = []
        self._chars = self._calls = 0
        self._broken: str | None = None
        """Text of the call that just broke; the reader may emit the same text next."""
        self.finished = False
        """The response has ended with an error."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that can be emitted after these."""
        out: list[AnyEvent] = []
        for event in events:
            if self.finished:
                break
            out += self._feed(event)
        return out

    def _feed(self, event: AnyEvent) -> list[AnyEvent]:
        match event:
            case Notice():
                return [event]
            case ToolCallStart():
                self._start, self._pieces, self._chars = event, [], 0
                return self._flush()
            case ToolCallDelta(_, text):
                return self._more(event, text)
            case ToolCallEnd():
                self._start = self._start and event.named(self._start)
                return [*self._release(), replace(event, index=self._calls - 1)]
            case ToolCallIncomplete(_, raw):
                return self._end_broken(raw)
            case TextDelta(text) if self._broken is not None and is_text_of_call(self._broken, text):
                self._broken = None
                return [event]
            case _:
                return [*self._flush(), event]

    def _more(self, event: ToolCallDelta, text: str) -> list[AnyEvent]:
        if self._start is None:
            return [replace(event, index=self._calls - 1)]
        self._pieces.append(text)
        self._chars += len(text)
        return self._release() if self._chars > self._buffer_limit_chars else []

    def _release(self) -> list[AnyEvent]:
        """Returns the buffered start and arguments of the call, if they have not been emitted."""
        start, self._start = self._start, None
        if start is None:
            return []
        self._calls += 1
        arguments = "".join(self._pieces)
        last = [ToolCallDelta(self._calls - 1, arguments)] if arguments else []
        return [replace(start, index=self._calls - 1), *last]

    def _end_broken(self, raw: str) -> list[AnyEvent]:
        start, self._start = self._start, None
        if start is None:
            self.finished = True
            # The model's text is not quoted, because the message is logged.
            message = (
                "expected a tool call in whole JSON, got one that broke off after its arguments had begun to stream"
            )
            return [Failure(BackendUnavailableError(f"{message} ({len(raw)} characters), so the response ends here"))]
        arguments = "".join(self._pieces)
        self._broken, self.handles = call_as_text(start.name, arguments, raw), ALL_EVENTS
        message = f"a call of {quote(start.name)} is incomplete; it is passed on as text"
        return [Notice("incomplete_call", message, self._broken)]

    def _flush(self) -> list[AnyEvent]:
        """Returns the text of a broken call, if the reader has not emitted it."""
        broken, self._broken = self._broken, None
        return [TextDelta(broken)] if broken else []


def call_as_text(name: str, arguments: str, raw: str) -> str:
    """Returns the text to show for an incomplete call: the model's own text if it is known."""
    return raw if name in raw else f"{name} {raw or arguments}"


def is_text_of_call(raw: str, text: str) -> bool:
    """Returns whether the reader emitted `text` for the broken call with the text `raw`."""
    content, call_text = text.strip(), raw.strip()
    return bool(content) and (content.startswith(call_text) or content in call_text)
