"""Something in a text that may be a call, and is read until that is known.

    <tool_call>{"name": "ping", "arguments": {}}</tool_call>

A reader of a format decides what it is. It passes for a call where one begins before any other word; or, where it must
wait, if nothing but calls comes to the text's end.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal

from dragoman.core.events import AnyEvent, Notice, TextDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.parsing.reply_reader import ReplyReader

_ENDS: Final = "})]>"
"""With which calls end, in any format."""
_STEPS: Final = re.compile(rf"[{re.escape(_ENDS)}]|[^{re.escape(_ENDS)}]+").finditer
"""How what must wait is read, so that it is known where a call ends."""
_SHORT_STEPS: Final = re.compile(r"(?s:.{1,128})").finditer
"""How it is read else: what is no call shows that soon, and all behind it is read again."""


class Candidate:
    """What may be a call, and is read by all who may know how."""

    def __init__(self, opener: str, readers: list[ReplyReader], *, waits: bool, compares: bool = False) -> None:
        """`waits`: until the end of the answer. `compares`: until the first call is whole."""
        self.opener = opener
        self.ends = 0
        """Where the last whole call ends; 0: none has come."""
        self.raws: list[str] = []
        """Of each call that is whole."""
        self._readings = [_Reading(reader, alone=waits, first=compares) for reader in readers]
        self.waits, self._compares = waits, compares
        self.unknown: Notice | None = None
        """It names a tool that is not offered."""
        self._pieces: list[str] = []
        self._chars = self._closed = 0
        """How much has been read, and up to where something in it could end a call."""

    @property
    def raw(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def is_none(self) -> bool:
        """Nobody can read it."""
        return not self._readings

    @property
    def is_call(self) -> bool:
        """It is a call, or begins as one, whatever follows."""
        begun = not self.waits and any(isinstance(event, ToolCallStart) for event in self.events)
        return begun and (not self._compares or self.ends > 0)

    @property
    def is_whole(self) -> bool:
        """One call has come, and it is time to compare it."""
        return self.ends > 0 and self._compares and not self.waits

    @property
    def reader(self) -> ReplyReader:
        """Who reads it."""
        return self._readings[0].reader

    @property
    def events(self) -> list[AnyEvent]:
        """What has been read."""
        return self._readings[0].events if self._readings else []

    def feed(self, text: str) -> str:
        """Read on, up to where it is known whether this is a call; the rest of the text is given back."""
        steps = _STEPS if self.waits or self._compares else _SHORT_STEPS
        used = 0
        for step in steps(text):
            self._read(step[0])
            used += len(step[0])
            if self.is_none or self.is_call:
                break
        return text[used:]

    def close(self, reason: Literal["stop", "length"]) -> list[AnyEvent] | None:
        """The calls, if it is nothing else."""
        for reading in self._readings:
            reading.take(reading.reader.close(reason), self._chars)
            if reading.ends and not reading.failed:
                self.raws = reading.raws(self.raw, self.opener)
                return reading.events
        return None

    def _read(self, text: str) -> None:
        self._pieces.append(text)
        self._chars += len(text)
        if text[-1] in _ENDS:
            self._closed = self._chars
        for reading in self._readings:
            reading.take(reading.reader.feed(text), self._closed)
            self.ends = max(self.ends, *reading.ends[-1:], 0)
            named = (event for event in reading.events if isinstance(event, Notice) and event.code == "unknown_tool")
            self.unknown = self.unknown or next(named, None)
        self._readings = [reading for reading in self._readings if not reading.failed]


class _Reading:
    """One way to read it."""

    def __init__(self, reader: ReplyReader, *, alone: bool, first: bool) -> None:
        """`alone`: nothing but calls may come. Else nothing before them, and where the `first` is to be compared,
        it must be whole."""
        self.reader, self._alone, self._first = reader, alone, first
        self.events: list[AnyEvent] = []
        self.ends: list[int] = []
        """Where each whole call ends."""
        self.failed = self._passed = False

    def take(self, events: Iterable[AnyEvent], end: int) -> None:
        """What was read, up to this place."""
        for event in events:
            self.events.append(event)
            match event:
                case _ if self._passed:  # whatever follows
                    pass
                case ToolCallStart():
                    self._passed = not (self._alone or self._first)
                case TextDelta(text) if text.strip():
                    self.failed = True
                case ToolCallIncomplete():
                    self.failed = True
                case ToolCallEnd():
                    self.ends.append(end)
                    self._passed = not self._alone
                case _:
                    pass

    def raws(self, raw: str, opener: str) -> list[str]:
        """The text of each call, without what stands between them."""
        starts = [0, *self.ends]
        found = (raw[start:end] for start, end in zip(starts, self.ends, strict=False))
        return [text[max(text.rfind(opener), 0) :].lstrip(",; \n") for text in found]
