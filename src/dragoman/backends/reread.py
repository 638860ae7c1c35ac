"""A server's answer, with its text read as the model wrote it: calls and thoughts in it come out as such.

    TextDelta('<tool_call>\\n{"name": "ping", …}\\n</tool_call>')   →   ToolCallStart, ToolCallDelta …, ToolCallEnd

Calls that the server reads itself pass all the same, under numbers of their own. What it reads and also leaves in the
text is made once.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    VendorBlock,
    Warning,
)

Key: TypeAlias = tuple[str, str]


class TextReader(Protocol):
    """Reads a run of text; `ReplyReader` is one."""

    @property
    def over(self) -> bool:
        """Nothing that still comes can matter."""

    def feed(self, text: str) -> list[AnyEvent]:
        """The events that this piece decides."""

    def close(self, reason: Literal["stop", "length"] = "stop") -> list[AnyEvent]:
        """The events that the end decides."""


class Reread:
    """Passes one answer's events on, its text read."""

    def __init__(
        self, reader: Callable[[], TextReader], names: Mapping[str, str] | None = None, *, parallel: bool = True
    ) -> None:
        """A `reader` is made for each run of text; `names`: by what the model knows a tool as, what the client does."""
        self._new_reader, self._names, self._parallel = reader, names or {}, parallel
        self._reader: TextReader | None = None
        self._numbers = _Numbers()
        self.over = False
        """What matters of the answer has come: whoever reads it may go."""

    def pass_on(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """The events that these make."""
        out: list[AnyEvent] = []
        for event in events:
            if self.over and not isinstance(event, Failure | Finish):
                continue
            match event:
                case TextDelta(text):
                    self._reader = self._reader or self._new_reader()
                    out += self._read(self._reader.feed(text))
                    self.over = self.over or self._reader.over
                case Finish(reason):
                    out += [*self._closed("length" if reason == "length" else "stop"), event]
                case Failure():
                    out += [*self._closed("length"), event]
                case ReasoningDelta() | RefusalDelta() | VendorBlock():
                    out += [*self._closed("stop"), event]
                case ToolCallStart():
                    out += [*self._closed("stop"), *self._numbers.pass_on(event, "server")]
                case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                    out += self._numbers.pass_on(event, "server")
                case _:
                    out.append(event)
        return out

    def end(self) -> list[AnyEvent]:
        """What is left of an answer that is gone from before its end."""
        return self._closed("stop")

    def _closed(self, reason: Literal["stop", "length"]) -> list[AnyEvent]:
        reader, self._reader = self._reader, None
        return self._read(reader.close(reason)) if reader else []

    def _read(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for event in events:
            if self.over:
                break
            match event:
                case ToolCallStart(name=name):
                    event = msgspec.structs.replace(event, name=self._names.get(name, name))
                    out += self._numbers.pass_on(event, "text")
                case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                    out += self._numbers.pass_on(event, "text")
                    self.over = isinstance(event, ToolCallEnd) and not self._parallel
                case _:
                    out.append(event)
        return out


Source: TypeAlias = Literal["text", "server"]


class _Numbers:
    """Numbers calls of the text and of the server as one answer's, and drops what is there from the other already."""

    def __init__(self) -> None:
        self._calls = 0
        self._made: dict[Source, Counter[Key]] = {"text": Counter(), "server": Counter()}
        self._name, self._arguments = "", list[str]()
        self._held: list[AnyEvent] | None = None

    def pass_on(self, event: AnyEvent, source: Source) -> list[AnyEvent]:
        """The event of a call; one that may be the other's once more waits until it is whole."""
        other: Source = "server" if source == "text" else "text"
        match event:
            case ToolCallStart(_, _, name):
                self._name, self._arguments = name, []
                self._held = [] if self._made[other] else None
                self._calls += 1
            case ToolCallDelta(_, text):
                self._arguments.append(text)
            case ToolCallEnd():
                key = _key(self._name, "".join(self._arguments))
                if self._held is not None and self._made[other][key]:
                    return self._again(key, other)
                self._made[source][key] += 1
            case _:
                pass
        out = [msgspec.structs.replace(event, index=self._calls - 1)]
        if self._held is None:
            return out
        self._held += out
        if not isinstance(event, ToolCallEnd | ToolCallIncomplete):
            return []
        held, self._held = self._held, None
        return held

    def _again(self, key: Key, other: Source) -> list[AnyEvent]:
        self._made[other] -= Counter([key])
        self._held = None
        self._calls -= 1
        told = f"the server sent the call of {self._name} and left it in the text too; it is made once"
        return [Warning("repeated_call", told, key[1])]


def _key(name: str, arguments: str) -> Key:
    """The call, whatever the white space and order of its arguments; as it is where Python cannot read it."""
    try:
        return name, json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments
