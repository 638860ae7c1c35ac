"""How a reply was read: spans of its text, end to end, each with what became of it.

    0-13   text       Let me see.⏎⏎
    13-58  call       <tool_call>{"name": "ping", "arguments":      ping, call_1, read as hermes
    58-61  arguments  {}
    61-73  end        }</tool_call>

`ReadTracer` stands between a format's reader and its sink. All that the reader says, it says where its
scanner stands; from that the spans follow, for any format, and reading without a tracer costs nothing.
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

Kind: TypeAlias = Literal["text", "thoughts", "call", "arguments", "end", "incomplete", "framing", "dropped", "unread"]
"""docs/library.md says what each is."""
_SPACE: Final = re.compile(r"\s*")
_GOT_CHARS: Final = 24
"""How much of the text is shown where something else was expected."""
_READINGS: Final = 3
"""How many other readings are named."""
_OFFERED: Final = 8
"""Up to how many tools are listed where an unknown one was called."""


class Remark(msgspec.Struct, frozen=True):
    """Something about a span: a warning, or why something is no call."""

    code: str
    """A warning's (docs/warnings.md), `no_call`, or `other_reading`: the same text has calls when read otherwise."""
    message: str
    at: int
    """The place in the text that it is about."""


class Span(msgspec.Struct, frozen=True):
    """A piece of the text and what became of it."""

    start: int
    end: int
    kind: Kind
    raw: str
    """The text itself, from `start` to `end`."""
    index: int | None = None
    """Of the call that this is part of; so with what follows."""
    id: str = ""
    name: str = ""
    format: str = ""
    """Whose reader took the call."""
    also_text: bool = False
    """The call broke, and the answer's text repeats this."""
    remarks: tuple[Remark, ...] = ()


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
    remarks: list[Remark] = field(default_factory=list)


class ReadTracer(ForwardingSink):
    """Follows one reply: `text` is all of it, `prompt_tail` what the prompt has opened of it.

    `offered` are the names of the tools, to say which one may have been meant.
    """

    def __init__(self, text: str, format: Format, prompt_tail: str = "", offered: Iterable[str] = ()) -> None:
        self.format = replace(format, read=self._read)
        """The format, so that its reader is followed."""
        self._text = prompt_tail + text
        self._prompt_chars = len(prompt_tail)
        self._format = format
        self._offered = tuple(offered)
        self._reader = format.name
        self._rows: list[_Row] = []
        self._pending: list[Remark] = []
        self._end = 0
        self._open: _Call | None = None
        self._behind: _Call | None = None  # the call that has just ended
        self._calls = 0
        self._unresolved = ""
        self._before_draft: tuple[int, _Row | None, int, int, _Call | None, int] | None = None

    def _read(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        self._s, self.sink = s, sink
        yield from self._format.read(s, self)

    def text(self, text: str) -> None:
        """The answer; where it repeats what had been a call, that is text too."""
        self._said("text", text)
        self.sink.text(text)

    def reasoning(self, text: str) -> None:
        """Thoughts."""
        self._said("thoughts", text)
        self.sink.reasoning(text)

    def resolve(self, name: str) -> str | None:
        """As the sink behind; a name that it does not know is remembered."""
        found = self.sink.resolve(name)
        self._unresolved = "" if found else name
        return found

    def start(self, name: str, id: str = "") -> None:
        """A call, which began where the reader began to keep the text."""
        kept, here = self._s.captured(), self._s.offset
        self._gap(here - len(kept) if self._text[here - len(kept) : here] == kept else self._end)
        self._open = _Call(self._calls, name, self._reader)
        self._calls += 1
        self._claim(here, "call", self._open)
        self.sink.start(name, id)

    def arguments(self, text: str) -> None:
        """Arguments, and what stands between them and the last that was read."""
        if self._s.offset > self._end:
            self._claim(self._s.offset, "arguments", self._open)
        self.sink.arguments(text)

    def end(self, id: str = "") -> None:
        """A whole call; what closes it may still come."""
        self._claim(self._s.offset, "end", self._open)
        self._open, self._behind = None, self._open
        if slips := self._s.repairs:  # which the sink behind tells
            warning = repair_warning(slips, "")
            self._remark(warning.code, warning.message, "")
        self.sink.end(id)

    def incomplete(self, raw: str) -> None:
        """A call that breaks off."""
        self._claim(self._s.offset, "incomplete", self._open)
        self._open = None
        self.sink.incomplete(raw)

    def begin_draft(self, closer: str) -> None:
        """What follows may turn out to be reasoning."""
        last = self._rows[-1] if self._rows else None
        kept = replace(last, remarks=[*last.remarks]) if last else None
        self._before_draft = (len(self._rows), kept, self._end, len(self._pending), self._behind, self._calls)
        self.sink.begin_draft(closer)

    def settle_draft(self, meant: bool) -> None:
        """What followed is what it was read as, or has not been read."""
        if self._before_draft and not meant:
            count, last, self._end, pending, self._behind, self._calls = self._before_draft
            del self._rows[count - 1 if last else 0 :], self._pending[pending:]
            self._rows += [last] if last else []
            self._open = None
        self.sink.settle_draft(meant)

    def end_reply(self, code: str, message: str, raw: str = "") -> None:
        """The rest is not read."""
        self._remark(code, message, raw)
        self.sink.end_reply(code, message, raw)

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """A remark on what was read last; outside calls, what it quotes has been dropped."""
        self.sink.warn(code, message, raw)
        if code == "unknown_tool":
            message += self._meant()
        elif code == "malformed_arguments":
            message = self._got(message)
        self._remark(code, message, raw)

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """Who reads on, or why this is no call; an unknown name has been told already."""
        if about == "format":
            self._reader = text
        elif not any(r.code == "unknown_tool" for r in self._remarks_here()):
            self._pending.append(Remark("no_call", self._got(text), self._s.offset))
        self.sink.note(about, text)

    def _remarks_here(self) -> Iterator[Remark]:
        """Those about where the scanner stands that no span has yet."""
        return takewhile(lambda remark: remark.at == self._s.offset, reversed(self._pending))

    def spans(self, events: Iterable[AnyEvent]) -> tuple[Span, ...]:
        """The spans of the reply, once it is closed; `events` are all that it gave."""
        self._gap(self._s.offset)
        if self._end < len(self._text):
            self._claim(len(self._text), "unread")
        for remark in self._pending:
            at = bisect_left(self._rows, remark.at, key=lambda row: row.end)
            if at < len(self._rows):
                self._rows[at].remarks.append(remark)
        starts = [e for e in events if isinstance(e, ToolCallStart)]
        replied = [
            row for row in self._rows if row.end > self._prompt_chars or row.end == row.start >= self._prompt_chars
        ]
        return tuple(self._span(row, starts) for row in replied)

    def _span(self, row: _Row, starts: Sequence[ToolCallStart]) -> Span:
        """A row with its place in the reply, and what its call was given."""
        before = self._prompt_chars
        start = max(row.start, before)
        number = row.call.index - self._calls + len(starts) if row.call else -1  # the prompt's own calls do not count
        given = starts[number] if number >= 0 else None
        return Span(
            start - before,
            row.end - before,
            row.kind,
            self._text[start : row.end],
            given.index if given else None,
            given.id if given else "",
            given.name if given else "",
            row.call.format if row.call and given else "",
            row.also_text,
            tuple(Remark(r.code, r.message, max(0, r.at - before)) for r in row.remarks),
        )

    def _said(self, kind: Literal["text", "thoughts"], text: str) -> None:
        if not text:
            return
        here = self._s.offset
        start = here - len(text)
        if self._text[start:here] != text:
            # White space from before a marker that has been read since; or noise was taken out of the text.
            found = self._text.find(text, self._end, here)
            start, here = (found, found + len(text)) if found >= 0 else (min(self._end, here), here)
        self._gap(start)
        for row in reversed(self._rows):
            if row.end <= start:
                break
            row.also_text |= row.call is not None
        if here > self._end:
            self._claim(here, kind)

    def _gap(self, upto: int) -> None:
        """What nobody has spoken of is framing; behind a call, the call's."""
        if upto > self._end:
            self._claim(upto, "end" if self._behind else "framing", self._behind)

    def _claim(self, upto: int, kind: Kind, call: _Call | None = None) -> None:
        last = self._rows[-1] if self._rows else None
        if last and last.kind == kind and last.call is call and kind != "dropped":
            last.end = upto
        else:
            self._rows.append(_Row(self._end, upto, kind, call))
        self._behind = call if kind == "end" else None
        self._end = upto

    def _remark(self, code: str, message: str, raw: str) -> None:
        here = self._s.offset
        start = self._text.rfind(raw, self._end, here) if raw and not self._open else -1
        if start >= 0:
            self._gap(start)
            self._claim(start + len(raw), "dropped")
        remark = Remark(code, message, start if start >= 0 else here)
        if start >= 0 or (self._rows and self._end == here):
            self._rows[-1].remarks.append(remark)
        else:
            self._pending.append(remark)

    def _meant(self) -> str:
        """Which tool may have been meant; all of them, where they are few."""
        if len(self._offered) > _OFFERED:
            return nearest(self._unresolved, self._offered)
        return one_of(self._unresolved, self._offered, "offered: ")

    def _got(self, problem: str) -> str:
        """`expected ':' at 40, got 'Paris'`."""
        at = _SPACE.match(self._text, self._s.offset).end()  # type: ignore[union-attr]
        got = self._text[at : at + _GOT_CHARS]
        at -= self._prompt_chars
        if not problem.startswith("expected"):
            return f"{problem} (at {at})"
        return f"{problem} at {at}, got {quote(got) if got else 'the end of the text'}"


def with_other_readings(spans: Sequence[Span], others: Mapping[str, Sequence[Span]]) -> tuple[Span, ...]:
    """The spans, with a remark where the first whole call begins that others find; `others` by how they read it."""
    begins = {how: call for how, other in others.items() if (call := _first_whole_call(other))}
    if not begins:
        return tuple(spans)
    first = min(call.start for call in begins.values())
    takers = {how: call.format for how, call in begins.items() if call.start == first}
    # What `auto` takes it for comes before the formats that also take it.
    who = sorted(takers, key=lambda how: -Counter(takers.values())[takers[how]])
    name = begins[who[0]].name
    more = f" and {len(who) - _READINGS} more" if len(who) > _READINGS else ""
    message = f"{', '.join(who[:_READINGS])}{more} would find a call of {quote(name)} here"
    return _remarked(spans, Remark("other_reading", message, first))


def _first_whole_call(spans: Sequence[Span]) -> Span | None:
    """Where it begins; one that the prompt has begun begins nowhere in the reply."""
    ends = {span.index for span in spans if span.kind == "end"}
    return next((span for span in spans if span.kind == "call" and span.index in ends), None)


def with_names(spans: Sequence[Span], names: Iterable[str]) -> tuple[Span, ...]:
    """The spans, with a remark where one of these tools is named for the first time, though no call was seen there."""
    text = "".join(span.raw for span in spans)
    found = re.search(rf"(?<!\w)(?:{'|'.join(map(re.escape, names)) or '(?!)'})(?!\w)", text)
    if not found:
        return tuple(spans)
    inside = next(span.kind for span in spans if span.end > found.start())
    why = {"thoughts": "thoughts are not searched for calls", "unread": "the reply was over"}
    told = why.get(inside, "nothing that is known to open a call stands before it")
    return _remarked(spans, Remark("no_call", f"{quote(found[0])} is named here, but {told}", found.start()))


def _remarked(spans: Sequence[Span], remark: Remark) -> tuple[Span, ...]:
    """The spans, with the remark at the one that it is about."""
    here = max(i for i, span in enumerate(spans) if span.start <= remark.at)
    noted = msgspec.structs.replace(spans[here], remarks=(*spans[here].remarks, remark))
    return (*spans[:here], noted, *spans[here + 1 :])
