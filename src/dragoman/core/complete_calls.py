"""Calls that reach a client only as whole JSON: what is never whole becomes text, or ends the stream with an error.

A call is held until it is whole, or until it is longer than a limit and its arguments begin to stream. One that breaks
while it is held is passed on as the model's text. One that breaks after its arguments have begun to stream cannot be
taken back, so the answer ends there with an error, which no client takes for a call.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from dragoman.core.errors import BackendUnavailableError, quote
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Notice,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)

HOLD_CHARS: Final = 4096
"""As long as the arguments of nearly all calls but those that write files."""


class WholeCalls:
    """Passes the events of one answer on, its calls only if they are whole."""

    def __init__(self, hold_chars: int = HOLD_CHARS) -> None:
        """`hold_chars`: arguments of more characters stream before the call is whole."""
        self._most = hold_chars
        self._start: ToolCallStart | None = None
        self._pieces: list[str] = []
        self._chars = self._calls = 0
        self._broken: str | None = None
        """The text of a call that broke just now; the reader may have left it as text, which follows then."""
        self.failed = False
        """The answer has ended with an error."""

    @property
    def waits(self) -> bool:
        """Something of a call is not out."""
        return self._broken is not None

    def pass_on(self, event: AnyEvent) -> list[AnyEvent]:
        """The events that may go out now that this has happened."""
        if self.failed:
            return []
        match event:
            case Notice():
                return [event]
            case ToolCallStart():
                self._start, self._pieces, self._chars = event, [], 0
                return self._left()
            case ToolCallDelta(_, text):
                return self._more(event, text)
            case ToolCallEnd():
                self._start = self._start and event.named(self._start)
                return [*self._begun(), replace(event, index=self._calls - 1)]
            case ToolCallIncomplete(_, raw):
                return self._broke(raw)
            case TextDelta(text) if self._broken is not None and left_of(self._broken, text):
                self._broken = None
                return [event]
            case _:
                return [*self._left(), event]

    def _more(self, event: ToolCallDelta, text: str) -> list[AnyEvent]:
        if self._start is None:
            return [replace(event, index=self._calls - 1)]
        self._pieces.append(text)
        self._chars += len(text)
        return self._begun() if self._chars > self._most else []

    def _begun(self) -> list[AnyEvent]:
        """The call as far as it has come, if nothing of it is out."""
        start, self._start = self._start, None
        if start is None:
            return []
        self._calls += 1
        arguments = "".join(self._pieces)
        last = [ToolCallDelta(self._calls - 1, arguments)] if arguments else []
        return [replace(start, index=self._calls - 1), *last]

    def _broke(self, raw: str) -> list[AnyEvent]:
        start, self._start = self._start, None
        if start is None:
            self.failed = True
            # The text stays out of the message, which is logged.
            told = "expected a tool call in whole JSON, got one that broke off after its arguments had begun to stream"
            return [Failure(BackendUnavailableError(f"{told} ({len(raw)} characters), so the answer ends here"))]
        arguments = "".join(self._pieces)
        self._broken = text_of(start.name, arguments, raw)
        told = f"a call of {quote(start.name)} was never whole, and became text"
        return [Notice("incomplete_call", told, self._broken)]

    def _left(self) -> list[AnyEvent]:
        """The text of a call that broke, which nothing else has."""
        broken, self._broken = self._broken, None
        return [TextDelta(broken)] if broken else []


def text_of(name: str, arguments: str, raw: str) -> str:
    """What a client is shown of a call that was never whole: the model's own text, where it is known."""
    return raw if name in raw else f"{name} {raw or arguments}"


def left_of(raw: str, text: str) -> bool:
    """Whether this text is what a reader left of the call."""
    said, meant = text.strip(), raw.strip()
    return bool(said) and (said.startswith(meant) or said in meant)


async def with_whole_calls(
    events: AsyncGenerator[AnyEvent, None], hold_chars: int = HOLD_CHARS
) -> AsyncGenerator[AnyEvent, None]:
    """The events of an answer, its calls only if they are whole."""
    calls = WholeCalls(hold_chars)
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TextDelta) and not calls.waits:  # nearly all events of an answer
                yield event
                continue
            for each in calls.pass_on(event):
                yield each
            if calls.failed:
                return
