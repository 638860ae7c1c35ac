"""Records how a reply was read: spans of its text without gaps, each with what became of it.

    0-13   text       Let me see.⏎⏎
    13-58  call       <tool_call>{"name": "ping", "arguments":      ping, call_1, read as hermes
    58-61  arguments  {}
    61-73  end        }</tool_call>

`ReadTracer` is placed between a format's reader and its sink. The reader reports everything at the scanner's current
position; the spans follow from that, for any format. Reading without a tracer has no overhead.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final, Literal, TypeAlias

import msgspec

from dragoman.core.errors import nearest, one_of, quote
from dragoman.core.events import AnyEvent, ToolCallStart
from dragoman.parsing.format import Format
from dragoman.parsing.sink import ForwardingSink, ToolCallSink
from dragoman.text.json_repairs import repair_warning
from dragoman.text.scanner import Parser, Scanner

Kind: TypeAlias = Literal["text", "reasoning", "call", "arguments", "end", "incomplete", "framing", "dropped", "unread"]
"""docs/library.md describes each."""
_SPACE: Final = re.compile(r"\s*")
_GOT_CHARS: Final = 24
"""Number of characters shown of unexpected text."""
_READINGS: Final = 3
"""Maximum number of other readings that are named."""
_OFFERED: Final = 8
"""Maximum number of tools that are listed after a call of an unknown one."""


class Note(msgspec.Struct, frozen=True):
    """Something about a span: a warning, or why text is not a call."""

    code: str
    """The code of a warning (docs/warnings.md), `no_call`, or `other_reading`: read otherwise, the text contains calls.
    """
    message: str
    at: int
    """Offset in the text."""


class Span(msgspec.Struct, frozen=True):
    """A piece of the text and what became of it."""

    start: int
    end: int
    kind: Kind
    raw: str
    """The text from `start` to `end`."""
    index: int | None = None
    """Index of the call that this is a part of; the next three fields also describe that call."""
    id: str = ""
    name: str = ""
    format: str = ""
    """The format whose reader read the call."""
    also_text: bool = False
    """True if the call is broken and this is repeated as answer text."""
    notes: tuple[Note, ...] = ()


@dataclass(slots=True)
class _Call:
    index: int
    name: str
    format: str


@dataclass(slots=True)
class _Row:
    start: int
    end: int
    kind: Kind
    call: _Call | None = None
    also_text: bool = False
    notes: list[Note] = field(default_factory=list)


class ReadTracer(ForwardingSink):
    """Traces one reply.

    Args:
        text: the whole reply.
        format: the format to read it in.
        prompt_suffix: the part of the reply that the prompt contains.
        offered: names of the tools, to suggest which one was meant.
    """

    def __init__(self, text: str, format: Format, prompt_suffix: str = "", offered: Iterable[str] = ()) -> None:
        self.format = replace(format, read=self._read)
        """The format, with its reader traced."""
        self._text = prompt_suffix + text
        self._prompt_chars = len(prompt_suffix)
        self._format = format
        self._offered = tuple(offered)
        self._reader = format.name
        self._rows: list[_Row] = []
        self._pending: list[Note] = []
        self._end = 0
        self._open: _Call | None = None
        self._after: _Call | None = None  # the call that has just ended
        self._calls = 0
        self._unresolved = ""
        self._before_draft: tuple[int, _Row | None, int, int, _Call | None, int] | None = None

    def _read(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        self._s, self.sink = s, sink
        yield from self._format.read(s, self)

    def text(self, text: str) -> None:
        """Records answer text; text that repeats a broken call is marked."""
        self._add_text("text", text)
        self.sink.text(text)

    def reasoning(self, text: str) -> None:
        """Records a piece of reasoning."""
        self._add_text("reasoning", text)
        self.sink.reasoning(text)

    def resolve(self, name: str) -> str | None:
        """Resolves the name; an unknown one is remembered."""
        resolved = self.sink.resolve(name)
        self._unresolved = "" if resolved else name
        return resolved

    def start(self, name: str, id: str = "") -> None:
        """Records a call, which begins where the reader began to capture text."""
        captured, offset = self._s.captured(), self._s.offset
        self._gap(offset - len(captured) if self._text[offset - len(captured) : offset] == captured else self._end)
        self._open = _Call(self._calls, name, self._reader)
        self._calls += 1
        self._claim(offset, "call", self._open)
        self.sink.start(name, id)

    def arguments(self, text: str) -> None:
        """Records arguments, and the text between them and the last span."""
        if self._s.offset > self._end:
            self._claim(self._s.offset, "arguments", self._open)
        self.sink.arguments(text)

    def end(self, id: str = "") -> None:
        """Records the end of a call; its closing marker may still follow."""
        self._claim(self._s.offset, "end", self._open)
        self._open, self._after = None, self._open
        if repairs := self._s.repairs:  # `self.sink` reports them
            warning = repair_warning(repairs, "")
            self._add_note(warning.code, warning.message, "")
        self.sink.end(id)

    def incomplete(self, raw: str) -> None:
        """Records an incomplete call."""
        self._claim(self._s.offset, "incomplete", self._open)
        self._open = None
        self.sink.incomplete(raw)

    def begin_draft(self, closer: str) -> None:
        """Saves the state: the spans that follow may turn out to be reasoning."""
        last = self._rows[-1] if self._rows else None
        last_copy = replace(last, notes=[*last.notes]) if last else None
        self._before_draft = (len(self._rows), last_copy, self._end, len(self._pending), self._after, self._calls)
        self.sink.begin_draft(closer)

    def settle_draft(self, is_reply: bool) -> None:
        """Keeps the spans of the draft, or restores the state before it."""
        if self._before_draft and not is_reply:
            count, last, self._end, pending, self._after, self._calls = self._before_draft
            del self._rows[count - 1 if last else 0 :], self._pending[pending:]
            self._rows += [last] if last else []
            self._open = None
        self.sink.settle_draft(is_reply)

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        """Records that the rest is not read."""
        self._add_note(code, message, raw)
        self.sink.end_reply(code, message, raw)

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Adds a note to the last span; outside calls, the text that it quotes was dropped."""
        self.sink.warn(code, message, raw)
        if code == "unknown_tool":
            message += self._suggestion()
        elif code == "malformed_arguments":
            message = self._with_actual(message)
        self._add_note(code, message, raw)

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Records the format that reads on, or why this is not a call, unless an unknown name was already reported."""
        if about == "format":
            self._reader = text
        elif not any(r.code == "unknown_tool" for r in self._notes_here()):
            self._pending.append(Note("no_call", self._with_actual(text), self._s.offset))
        self.sink.note(about, text)

    def _notes_here(self) -> Iterator[Note]:
        """Returns the notes at the scanner's position that belong to no span yet."""
        return takewhile(lambda note: note.at == self._s.offset, reversed(self._pending))

    def spans(self, events: Iterable[AnyEvent]) -> tuple[Span, ...]:
        """Returns the spans of the reply once it is closed; `events` are all that it gave."""
        self._gap(self._s.offset)
        if self._end < len(self._text):
            self._claim(len(self._text), "unread")
        for note in self._pending:
            at = bisect_left(self._rows, note.at, key=lambda row: row.end)
            if at < len(self._rows):
                self._rows[at].notes.append(note)
        starts = [e for e in events if isinstance(e, ToolCallStart)]
        replied = [
            row for row in self._rows if row.end > self._prompt_chars or row.end == row.start >= self._prompt_chars
        ]
        return tuple(self._span(row, starts) for row in replied)

    def _span(self, row: _Row, starts: Sequence[ToolCallStart]) -> Span:
        """Returns a row as a span with its offsets in the reply and the call's event data."""
        before = self._prompt_chars
        start = max(row.start, before)
        number = row.call.index - self._calls + len(starts) if row.call else -1  # the prompt's own calls do not count
        call_start = starts[number] if number >= 0 else None
        return Span(
            start - before,
            row.end - before,
            row.kind,
            self._text[start : row.end],
            call_start.index if call_start else None,
            call_start.id if call_start else "",
            call_start.name if call_start else "",
            row.call.format if row.call and call_start else "",
            row.also_text,
            tuple(Note(r.code, r.message, max(0, r.at - before)) for r in row.notes),
        )

    def _add_text(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if not text:
            return
        offset = self._s.offset
        start = offset - len(text)
        if self._text[start:offset] != text:
            # White space from before a marker that has been read since; or noise was taken out of the text.
            start_found = self._text.find(text, self._end, offset)
            start, offset = (
                (start_found, start_found + len(text)) if start_found >= 0 else (min(self._end, offset), offset)
            )
        self._gap(start)
        for row in reversed(self._rows):
            if row.end <= start:
                break
            row.also_text |= row.call is not None
        if offset > self._end:
            self._claim(offset, kind)

    def _gap(self, upto: int) -> None:
        """Claims text that nothing was reported for as framing; directly after a call, as its end."""
        if upto > self._end:
            self._claim(upto, "end" if self._after else "framing", self._after)

    def _claim(self, upto: int, kind: Kind, call: _Call | None = None) -> None:
        last = self._rows[-1] if self._rows else None
        if last and last.kind == kind and last.call is call and kind != "dropped":
            last.end = upto
        else:
            self._rows.append(_Row(self._end, upto, kind, call))
        self._after = call if kind == "end" else None
        self._end = upto

    def _add_note(self, code: str, message: str, raw: str) -> None:
        offset = self._s.offset
        start = self._text.rfind(raw, self._end, offset) if raw and not self._open else -1
        if start >= 0:
            self._gap(start)
            self._claim(start + len(raw), "dropped")
        note = Note(code, message, start if start >= 0 else offset)
        if start >= 0 or (self._rows and self._end == offset):
            self._rows[-1].notes.append(note)
        else:
            self._pending.append(note)

    def _suggestion(self) -> str:
        """Suggests the tool that was meant; lists all if there are few."""
        if len(self._offered) > _OFFERED:
            return nearest(self._unresolved, self._offered)
        return one_of(self._unresolved, self._offered, "offered: ")

    def _with_actual(self, problem: str) -> str:
        """Adds position and actual text to a problem: `expected ':' at 40, got 'Paris'`."""
        at = _SPACE.match(self._text, self._s.offset).end()  # type: ignore[union-attr]
        actual = self._text[at : at + _GOT_CHARS]
        at -= self._prompt_chars
        if not problem.startswith("expected"):
            return f"{problem} (at {at})"
        return f"{problem} at {at}, got {quote(actual) if actual else 'the end of the text'}"


def with_other_readings(spans: Sequence[Span], others: Mapping[str, Sequence[Span]]) -> tuple[Span, ...]:
    """Returns the spans with a note at the first complete call that other readings find; `others` are spans by
    reading."""
    begins = {reading: call for reading, other in others.items() if (call := _first_whole_call(other))}
    if not begins:
        return tuple(spans)
    first = min(call.start for call in begins.values())
    takers = {reading: call.format for reading, call in begins.items() if call.start == first}
    # The format that `auto` chooses comes before others that also find a call.
    readings = sorted(takers, key=lambda reading: -Counter(takers.values())[takers[reading]])
    name = begins[readings[0]].name
    more = f" and {len(readings) - _READINGS} more" if len(readings) > _READINGS else ""
    message = f"{', '.join(readings[:_READINGS])}{more} would find a call of {quote(name)} here"
    return _with_note(spans, Note("other_reading", message, first))


def _first_whole_call(spans: Sequence[Span]) -> Span | None:
    """Returns the first complete call that begins in the reply, not in the prompt."""
    ends = {span.index for span in spans if span.kind == "end"}
    return next((span for span in spans if span.kind == "call" and span.index in ends), None)


def with_names(spans: Sequence[Span], names: Iterable[str]) -> tuple[Span, ...]:
    """Returns the spans with a note at the first mention of one of these tools, if no call was found there."""
    text = "".join(span.raw for span in spans)
    match = re.search(rf"(?<!\w)(?:{'|'.join(map(re.escape, names)) or '(?!)'})(?!\w)", text)
    if not match:
        return tuple(spans)
    kind = next(span.kind for span in spans if span.end > match.start())
    why = {"reasoning": "reasoning is not searched for calls", "unread": "the reply was over"}
    reason = why.get(kind, "nothing that is known to open a call stands before it")
    return _with_note(spans, Note("no_call", f"{quote(match[0])} is named here, but {reason}", match.start()))


def _with_note(spans: Sequence[Span], note: Note) -> tuple[Span, ...]:
    """Returns the spans with the note at the span that it is about."""
    index = max(i for i, span in enumerate(spans) if span.start <= note.at)
    noted = msgspec.structs.replace(spans[index], notes=(*spans[index].notes, note))
    return (*spans[:index], noted, *spans[index + 1 :])
