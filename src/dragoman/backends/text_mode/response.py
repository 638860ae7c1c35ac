r"""Turns tool calls and reasoning in the text of a response into events.

    TextDelta('<tool_call>\n{"name": "ping", …}\n</tool_call>')   →   ToolCallStart, ToolCallDelta …, ToolCallEnd

Calls that the server parses itself are passed on too, with new indexes. A call that the server both parses and leaves
in the text is emitted once. Text that no known format explains may still be a leaked call (`leaked_calls`); a call in
the reasoning field is emitted only if the response contains nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from dragoman.backends.text_mode.leaked_calls import LeakDetector
from dragoman.core.events import (
    ALL_EVENTS,
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
from dragoman.core.repeated_call import CallKey, call_key
from dragoman.core.stage import EventStage

Reason: TypeAlias = Literal["stop", "length"]
_UNCHANGED: Final = frozenset((Start, UsageUpdate, Notice, Detail))


class TextReader(Protocol):
    """Reads a run of text; `ReplyReader` is one."""

    @property
    def finished(self) -> bool:
        """Whether the rest of the text can be discarded."""

    def feed(self, text: str) -> list[AnyEvent]:
        """Returns the events that this text completes."""

    def close(self, reason: Reason = "stop") -> list[AnyEvent]:
        """Returns the events that the end of the text completes."""


class TextModeReader(EventStage):
    """Parses the text of one response's events."""

    handles = ALL_EVENTS - {Start, UsageUpdate, Notice}

    def __init__(
        self,
        reader: Callable[[bool], TextReader] | None,
        leaks: Callable[[bool, bool], LeakDetector] | None,
        new_id: NewId,
        names: Mapping[str, str],
        on_recovered: Callable[[], None],
        on_text: Callable[[str], None] | None = None,
        *,
        parallel: bool = True,
        repeats: bool = True,
    ) -> None:
        """
        Args:
            reader: makes a reader for a run of text, told whether the response begins there; None: format not known.
            leaks: makes a detector for leaked calls, told the same, and whether all calls wait for the end; None: no
                detection.
            new_id: makes ids for tool calls.
            names: the client's tool names, by the model's.
            on_recovered: is called for each recovered call.
            on_text: is called with each piece of the text, as the model wrote it; None: not recorded.
            parallel: whether several calls are allowed; if not, the first one ends the response.
            repeats: whether the same call may occur again; if not, the repeated call is dropped and ends the response.
        """
        self._on_recovered, self._on_text = on_recovered, on_text
        self._new_reader, self._new_leaks, self._names, self._parallel = reader, leaks, names, parallel
        self._reader: TextReader | None = None
        self._leaks: LeakDetector | None = None
        self._reasoning_leaks: LeakDetector | None = None
        """Detector for the server's reasoning field; a call there counts only if nothing else follows."""
        self._merger = _CallMerger(new_id, repeats)
        self._has_content = False
        """Text or calls have been emitted."""
        self._has_reasoning = False
        """The server sends reasoning in a field of its own."""
        self.finished = False
        """Whether the rest of the response can be discarded."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that these become."""
        if len(events) == 1 and type(events[0]) is TextDelta:  # the most frequent case
            return self._text_event(events[0], events)
        out: list[AnyEvent] = []
        for event in events:
            if type(event) is TextDelta:
                out += self._text_event(event, (event,))
            elif type(event) is Finish:
                out += self._finish("length" if event.reason == "length" else "stop")
                out.append(event)
            elif type(event) is Failure:
                out += [*self._close_text("length"), *self._release_reasoning(), event]
            elif type(event) not in _UNCHANGED:
                out += () if self.finished else self._content(event)
            else:
                if type(event) is Detail and event.name == TEXT_BREAK and not self.finished:
                    out += self._close_text("stop")
                out.append(event)
        return out

    def _text_event(self, event: TextDelta, unchanged: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns what the text becomes: usually `unchanged`, the sequence that contains only this event."""
        text = event.text
        if self._on_text is not None:
            self._on_text(text)
        if self.finished:
            return ()
        released = self._release_reasoning() if self._reasoning_leaks and text.strip() else []
        if self._new_reader is not None:
            return [*released, *self._read(self._new_reader, text)]
        if self._leaks is None and self._new_leaks is not None:
            self._leaks = self._new_leaks(not self._has_content, False)
        if self._leaks is not None and not self._leaks.passes(text):
            return [*released, *self._found(self._leaks.read(text))]
        self._has_content = self._has_content or bool(text.strip())
        return [*released, *unchanged] if released else unchanged

    def _content(self, event: AnyEvent) -> list[AnyEvent]:
        """Handles events of the response's content, except for text."""
        match event:
            case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                return self._merger.feed(event, "server")
        before = self._close_text("stop")
        if self.finished:  # the end of the text has ended the response
            return before
        match event:
            case ReasoningDelta(text, "", "") if self._new_leaks:
                self._has_reasoning = True
                self._reasoning_leaks = self._reasoning_leaks or self._new_leaks(False, True)
                return [*before, *_as_reasoning(self._reasoning_leaks.feed(text))]
            case ToolCallStart():
                self._has_content = True
                return [*before, *self._release_reasoning(), *self._merger.feed(event, "server")]
            case _:
                self._has_reasoning = self._has_reasoning or isinstance(event, ReasoningDelta)
                return [*before, *self._release_reasoning(), event]

    def _read(self, new_reader: Callable[[bool], TextReader], text: str) -> list[AnyEvent]:
        self._reader = self._reader or new_reader(not (self._has_content or self._has_reasoning))
        out = self._detect_leaks(self._reader.feed(text))
        self.finished = self.finished or self._reader.finished
        return out

    def _detect_leaks(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Passes on a reader's events, with leaked calls detected in its text."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case TextDelta(text) if self._new_leaks:
                    self._leaks = self._leaks or self._new_leaks(not self._has_content, False)
                    out += self._found(self._leaks.feed(text))
                case Notice():
                    out += self._merge([event])
                case _:
                    out += [*self._close_leaks("stop"), *self._merge([event])]
        return out

    def _found(self, events: list[AnyEvent]) -> list[AnyEvent]:
        """Passes on the events of the detector, which may end the response."""
        leaks, out = self._leaks, self._merge(events)
        self.finished = self.finished or (leaks is not None and leaks.finished)
        return out

    def _finish(self, reason: Reason) -> list[AnyEvent]:
        out = self._close_text(reason)
        if self._reasoning_leaks is None:
            return out
        if self._has_content:
            return [*out, *self._release_reasoning()]
        detector, self._reasoning_leaks = self._reasoning_leaks, None
        return [*out, *self._merge(_as_reasoning(detector.close(reason)))]

    def _close_text(self, reason: Reason) -> list[AnyEvent]:
        """Returns the events that the end of a run of text completes."""
        if self._reader is None:
            return self._close_leaks(reason)
        reader, self._reader = self._reader, None
        return [*self._detect_leaks(reader.close(reason)), *self._close_leaks(reason)]

    def _close_leaks(self, reason: Reason) -> list[AnyEvent]:
        leaks, self._leaks = self._leaks, None
        return self._merge(leaks.close(reason)) if leaks and not leaks.is_empty else []

    def _release_reasoning(self) -> list[AnyEvent]:
        """Returns the waiting reasoning as reasoning, as other content follows it."""
        detector, self._reasoning_leaks = self._reasoning_leaks, None
        return _as_reasoning(detector.close_as_text()) if detector else []

    def _merge(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        out: list[AnyEvent] = []
        for event in events:
            if self.finished:
                break
            match event:
                case TextDelta(text):
                    self._has_content = self._has_content or bool(text.strip())
                    out.append(event)
                case ToolCallStart(name=name):
                    event = msgspec.structs.replace(event, name=self._names.get(name, name))
                    out += self._merger.feed(event, "text")
                    self._has_content = True
                case ToolCallDelta() | ToolCallEnd() | ToolCallIncomplete():
                    out += self._merger.feed(event, "text")
                    is_single_call = isinstance(event, ToolCallEnd) and not self._parallel
                    self.finished = is_single_call or self._merger.repeated
                    if isinstance(event, ToolCallIncomplete):  # its text follows, and is not another call
                        self._new_leaks = None
                case Notice("leaked_call_recovered"):
                    self._on_recovered()
                    out.append(event)
                case _:
                    out.append(event)
        return out


def _as_reasoning(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    return [ReasoningDelta(event.text) if isinstance(event, TextDelta) else event for event in events]


Source: TypeAlias = Literal["text", "server"]
_OTHER: Final[Mapping[Source, Source]] = {"text": "server", "server": "text"}


class _CallMerger:
    """Gives the calls of the text and of the server consecutive indexes, and drops those that the other one already
    had.
    """

    def __init__(self, new_id: NewId, repeats: bool) -> None:
        self._new_id = new_id
        self._ids: set[str] = set()
        self._calls = 0
        self._seen: dict[Source, dict[CallKey, int]] = {"text": {}, "server": {}}
        self._name = ""
        self._arguments: list[str] = []
        self._pending: list[AnyEvent] | None = None
        self._allow_repeats = repeats
        self.repeated = False
        """The text contains the same call again, which is not allowed."""

    def feed(self, event: AnyEvent, source: Source) -> list[AnyEvent]:
        """Returns the event with its index; events of a call that may be a duplicate wait until the call is
        complete.
        """
        match event:
            case ToolCallStart():
                event = self._begin(event, source)
            case ToolCallDelta(_, text):
                self._arguments.append(text)
            case ToolCallEnd():
                if duplicate := self._end(source):
                    return duplicate
            case _:
                pass
        out = [msgspec.structs.replace(event, index=self._calls - 1)]
        if self._pending is None:
            return out
        self._pending += out
        if not isinstance(event, ToolCallEnd | ToolCallIncomplete):
            return []
        pending, self._pending = self._pending, None
        return pending

    def _begin(self, event: ToolCallStart, source: Source) -> ToolCallStart:
        """Returns the start, with an id of its own."""
        if event.id in self._ids:  # a reader knows only its own ids
            event = msgspec.structs.replace(event, id=f"call_{self._new_id()}")
        self._ids.add(event.id)
        self._name, self._arguments = event.name, []
        may_repeat = self._rejects_repeats(source) and any(key[0] == event.name for key in self._seen["text"])
        self._pending = [] if self._seen[_OTHER[source]] or may_repeat else None
        self._calls += 1
        return event

    def _end(self, source: Source) -> list[AnyEvent]:
        """Returns the warning if the call is a duplicate; its events are dropped."""
        made, others = call_key(self._name, "".join(self._arguments)), self._seen[_OTHER[source]]
        if self._pending is not None and made in others:
            others[made] -= 1
            if not others[made]:
                del others[made]
            return self._drop(made, "the server sent this call, and left it in the text too; it is made once")
        if self._rejects_repeats(source) and made in self._seen["text"]:
            self.repeated = True
            return self._drop(made, "the model repeated this call; the answer ends there")
        self._seen[source][made] = self._seen[source].get(made, 0) + 1
        return []

    def _rejects_repeats(self, source: Source) -> bool:
        return source == "text" and not self._allow_repeats

    def _drop(self, made: CallKey, message: str) -> list[AnyEvent]:
        self._pending = None
        self._calls -= 1
        return [Notice("duplicate_call_dropped", message, made[1])]
