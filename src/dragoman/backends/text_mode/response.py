"""A server's answer, with its text read as the model wrote it: calls and thoughts in it come out as such.

    TextDelta('<tool_call>\\n{"name": "ping", …}\\n</tool_call>')   →   ToolCallStart, ToolCallDelta …, ToolCallEnd

Calls that the server reads itself pass all the same, under numbers of their own. What it reads and also leaves in the
text is made once. What no known format explains may still be a call that was left there (`rescue`); one in the field
for thoughts is made where the answer has nothing else.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from dragoman.backends.text_mode.leaked_calls import Leaks
from dragoman.core.call_identity import CallKey, call_key
from dragoman.core.events import (
    TEXT_BREAK,
    AnyEvent,
    Detail,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.identifiers import NewId

Reason: TypeAlias = Literal["stop", "length"]


class TextReader(Protocol):
    """Reads a run of text; `ReplyReader` is one."""

    @property
    def finished(self) -> bool:
        """Nothing that still comes can matter."""

    def feed(self, text: str) -> list[AnyEvent]:
        """The events that this piece decides."""

    def close(self, reason: Reason = "stop") -> list[AnyEvent]:
        """The events that the end decides."""


class Reread:
    """Passes one answer's events on, its text read."""

    def __init__(
        self,
        reader: Callable[[bool], TextReader] | None,
        leaks: Callable[[bool, bool], Leaks] | None,
        new_id: NewId,
        names: Mapping[str, str],
        rescued: Callable[[], None],
        *,
        parallel: bool = True,
        repeats: bool = True,
    ) -> None:
        """A `reader` is made for each run of text, where the model's format is known, told whether the answer begins
        there. `leaks` looks for calls in what is left, told that too, and whether all must wait; `rescued` is told of
        each. `names`: the client's, by the model's. Without `repeats` the same call once more is dropped, and ends the
        answer.
        """
        self._rescued = rescued
        self._new_reader, self._new_leaks, self._names, self._parallel = reader, leaks, names, parallel
        self._reader: TextReader | None = None
        self._leaks: Leaks | None = None
        self._thoughts: Leaks | None = None
        """In the server's field for them; a call there is one where nothing else comes."""
        self._numbers = _Numbers(new_id, repeats)
        self._said = False
        """Words or calls have gone out."""
        self._reasoned = False
        """The server has thoughts in their own field."""
        self.over = False
        """What matters of the answer has come: whoever reads it may go."""

    def pass_on(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """The events that these make."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case Detail(name) if name == TEXT_BREAK and not self.over:
                    out += [*self._closed("stop"), event]
                case Start() | UsageUpdate() | Notice() | Detail():
                    out.append(event)
                case Finish(reason):
                    out += [*self._ended("length" if reason == "length" else "stop"), event]
                case Failure():
                    out += [*self._closed("length"), *self._thought(), event]
                case _ if not self.over:
                    out += self._answer(event)
                case _:
                    pass
        return out

    def _answer(self, event: AnyEvent) -> list[AnyEvent]:
        """What the answer itself is made of."""
        match event:
            case TextDelta(text):
                aside = self._thought() if text.strip() else []
                return [*aside, *self._text(text)]
            case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                return self._numbers.pass_on(event, "server")
        before = self._closed("stop")
        if self.over:  # the end of the text has told
            return before
        match event:
            case ReasoningDelta(text, "", "") if self._new_leaks:
                self._reasoned = True
                self._thoughts = self._thoughts or self._new_leaks(False, True)
                return [*before, *_as_thoughts(self._thoughts.feed(text))]
            case ToolCallStart():
                self._said = True
                return [*before, *self._thought(), *self._numbers.pass_on(event, "server")]
            case _:
                self._reasoned = self._reasoned or isinstance(event, ReasoningDelta)
                return [*before, *self._thought(), event]

    def _text(self, text: str) -> list[AnyEvent]:
        if self._new_reader is None:
            return self._found([TextDelta(text)])
        self._reader = self._reader or self._new_reader(not (self._said or self._reasoned))
        out = self._found(self._reader.feed(text))
        self.over = self.over or self._reader.finished
        return out

    def _found(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """What a reader gave, with what it left in the text."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case TextDelta(text) if self._new_leaks:
                    self._leaks = self._leaks or self._new_leaks(not self._said, False)
                    out += self._numbered(self._leaks.feed(text))
                    self.over = self.over or self._leaks.over
                case Notice():
                    out += self._numbered([event])
                case _:
                    out += [*self._left("stop"), *self._numbered([event])]
        return out

    def _ended(self, reason: Reason) -> list[AnyEvent]:
        out = self._closed(reason)
        if self._thoughts is None or self._said:
            return [*out, *self._thought()]
        thoughts, self._thoughts = self._thoughts, None
        return [*out, *self._numbered(_as_thoughts(thoughts.close(reason)))]

    def _closed(self, reason: Reason) -> list[AnyEvent]:
        """What the end of a run of text adds."""
        reader, self._reader = self._reader, None
        return [*(self._found(reader.close(reason)) if reader else []), *self._left(reason)]

    def _left(self, reason: Reason) -> list[AnyEvent]:
        leaks, self._leaks = self._leaks, None
        return self._numbered(leaks.close(reason)) if leaks else []

    def _thought(self) -> list[AnyEvent]:
        """What waited in the thoughts, which something else has followed."""
        thoughts, self._thoughts = self._thoughts, None
        return _as_thoughts(thoughts.give_up()) if thoughts else []

    def _numbered(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for event in events:
            if self.over:
                break
            match event:
                case TextDelta(text):
                    self._said = self._said or bool(text.strip())
                    out.append(event)
                case ToolCallStart(name=name):
                    event = msgspec.structs.replace(event, name=self._names.get(name, name))
                    out += self._numbers.pass_on(event, "text")
                    self._said = True
                case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                    out += self._numbers.pass_on(event, "text")
                    one_is_enough = isinstance(event, ToolCallEnd) and not self._parallel
                    self.over = one_is_enough or self._numbers.repeated
                    if isinstance(event, ToolCallIncomplete):  # whose text follows, and is no other call
                        self._new_leaks = None
                case Notice("leaked_call_recovered"):
                    self._rescued()
                    out.append(event)
                case _:
                    out.append(event)
        return out


def _as_thoughts(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    return [ReasoningDelta(event.text) if isinstance(event, TextDelta) else event for event in events]


Source: TypeAlias = Literal["text", "server"]


class _Numbers:
    """Numbers calls of the text and of the server as one answer's, and drops what is there from the other already."""

    def __init__(self, new_id: NewId, repeats: bool) -> None:
        self._new_id, self._ids = new_id, set[str]()
        self._calls = 0
        self._made: dict[Source, Counter[CallKey]] = {"text": Counter(), "server": Counter()}
        self._name, self._arguments = "", list[str]()
        self._held: list[AnyEvent] | None = None
        self._repeats = repeats
        self.repeated = False
        """The text has a call once more that may not come again."""

    def pass_on(self, event: AnyEvent, source: Source) -> list[AnyEvent]:
        """The event of a call; one that may be there already waits until it is whole."""
        other: Source = "server" if source == "text" else "text"
        match event:
            case ToolCallStart(_, id, name):
                if id in self._ids:  # a reader knows only of its own
                    event = msgspec.structs.replace(event, id=f"call_{self._new_id()}")
                self._ids.add(event.id)
                self._name, self._arguments = name, []
                again = source == "text" and not self._repeats and any(key[0] == name for key in self._made["text"])
                self._held = [] if self._made[other] or again else None
                self._calls += 1
            case ToolCallDelta(_, text):
                self._arguments.append(text)
            case ToolCallEnd():
                made = call_key(self._name, "".join(self._arguments))
                if self._held is not None and self._made[other][made]:
                    self._made[other] -= Counter([made])
                    return self._dropped(
                        made, "the server sent this call, and left it in the text too; it is made once"
                    )
                if source == "text" and not self._repeats and self._made["text"][made]:
                    self.repeated = True
                    return self._dropped(made, "the model wrote this call once more; the answer ends there")
                self._made[source][made] += 1
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

    def _dropped(self, made: CallKey, told: str) -> list[AnyEvent]:
        self._held = None
        self._calls -= 1
        return [Notice("duplicate_call_dropped", told, made[1])]
