"""Text that may be a tool call, read until that is decided.

    <tool_call>{"name": "ping", "arguments": {}}</tool_call>

Readers of the formats decide what it is. It is accepted as a call if a call begins before any other text; or, if it
must wait, if there is nothing but calls up to the end of the text.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal

from dragoman.core.events import AnyEvent, Notice, TextDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.parsing.reply_reader import ReplyReader

_CALL_CLOSERS: Final = "})]>"
"""The last characters of calls, in every format."""
_STEPS: Final = re.compile(rf"[{re.escape(_CALL_CLOSERS)}]|[^{re.escape(_CALL_CLOSERS)}]+").finditer
"""Chunks for text that must wait, so that the end of each call is known."""
_SHORT_STEPS: Final = re.compile(r"(?s:.{1,128})").finditer
"""Chunks for other text: text that is not a call is rejected soon, and everything after it is read again."""


class LeakCandidate:
    """Text that may be a tool call, read by all readers that may know its format."""

    def __init__(self, opener: str, readers: list[ReplyReader], *, waits: bool, compares: bool = False) -> None:
        """
        Args:
            opener: the text that opens the candidate.
            readers: readers to try, in order of preference.
            waits: whether it is decided only at the end of the response.
            compares: whether it is decided only when the first call is complete.
        """
        self.opener = opener
        self.last_call_end = 0
        """Offset of the end of the last complete call; 0: there is none."""
        self.call_texts: list[str] = []
        """The text of each complete call."""
        self._readings = [_FormatReading(reader, calls_only=waits, first=compares) for reader in readers]
        self.waits, self._compares = waits, compares
        self.unknown_tool: Notice | None = None
        """The warning about a tool that was not offered, if the text names one."""
        self._pieces: list[str] = []
        self._chars = self._last_closer = 0
        """Characters read, and the offset after the last of them that could end a call."""

    @property
    def raw(self) -> str:
        """The whole text of the candidate."""
        return "".join(self._pieces)

    @property
    def is_rejected(self) -> bool:
        """Whether no reader accepts the text."""
        return not self._readings

    @property
    def is_call(self) -> bool:
        """Whether the text is a call, or begins as one, whatever follows."""
        has_start = not self.waits and any(isinstance(event, ToolCallStart) for event in self.events)
        return has_start and (not self._compares or self.last_call_end > 0)

    @property
    def is_comparable(self) -> bool:
        """Whether one call is complete and must now be compared with the caller's text."""
        return self.last_call_end > 0 and self._compares and not self.waits

    @property
    def reader(self) -> ReplyReader:
        """The reader that accepts the text."""
        return self._readings[0].reader

    @property
    def events(self) -> list[AnyEvent]:
        """The events read so far."""
        return self._readings[0].events if self._readings else []

    def feed(self, text: str) -> str:
        """Reads text until it is decided whether this is a call, and returns the rest of the text."""
        steps = _STEPS if self.waits or self._compares else _SHORT_STEPS
        used = 0
        for step in steps(text):
            self._read(step[0])
            used += len(step[0])
            if self.is_rejected or self.is_call:
                break
        return text[used:]

    def close(self, reason: Literal["stop", "length"]) -> list[AnyEvent] | None:
        """Returns the events of the calls if there is nothing else, otherwise None."""
        for reading in self._readings:
            reading.feed(reading.reader.close(reason), self._chars)
            if reading.call_ends and not reading.failed:
                self.call_texts = reading.call_texts(self.raw, self.opener)
                return reading.events
        return None

    def _read(self, text: str) -> None:
        self._pieces.append(text)
        self._chars += len(text)
        if text[-1] in _CALL_CLOSERS:
            self._last_closer = self._chars
        for reading in self._readings:
            reading.feed(reading.reader.feed(text), self._last_closer)
            self.last_call_end = max(self.last_call_end, *reading.call_ends[-1:], 0)
            named = (event for event in reading.events if isinstance(event, Notice) and event.code == "unknown_tool")
            self.unknown_tool = self.unknown_tool or next(named, None)
        self._readings = [reading for reading in self._readings if not reading.failed]


class _FormatReading:
    """The candidate as one reader reads it."""

    def __init__(self, reader: ReplyReader, *, calls_only: bool, first: bool) -> None:
        """
        Args:
            reader: the reader.
            calls_only: whether there must be nothing but calls. If not, nothing may precede them.
            first: whether the first call must be complete, as it is compared with the caller's text.
        """
        self.reader, self._calls_only, self._compares = reader, calls_only, first
        self.events: list[AnyEvent] = []
        self.call_ends: list[int] = []
        """Offsets of the ends of complete calls."""
        self.failed = self._accepted = False

    def feed(self, events: Iterable[AnyEvent], end: int) -> None:
        """Handles the events read up to this offset."""
        for event in events:
            self.events.append(event)
            match event:
                case _ if self._accepted:  # whatever follows
                    pass
                case ToolCallStart():
                    self._accepted = not (self._calls_only or self._compares)
                case TextDelta(text) if text.strip():
                    self.failed = True
                case ToolCallIncomplete():
                    self.failed = True
                case ToolCallEnd():
                    self.call_ends.append(end)
                    self._accepted = not self._calls_only
                case _:
                    pass

    def call_texts(self, raw: str, opener: str) -> list[str]:
        """Returns the text of each call, without the text between them."""
        starts = [0, *self.call_ends]
        texts = (raw[start:end] for start, end in zip(starts, self.call_ends, strict=False))
        return [text[max(text.rfind(opener), 0) :].lstrip(",; \n") for text in texts]
