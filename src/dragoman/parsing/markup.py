"""How a reply is put together: text, thoughts and calls, each begun by a marker of its own.

    Plan.</think>Checking.<tool_call>…</tool_call>

A marker exists only where it can mean something: thoughts begin at the start of the reply or behind a call, never
in prose; what closes nothing is dropped only behind a call. What reads on behind an opener is the format's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dragoman.parsing.code_fence import FENCE
from dragoman.parsing.partial_marker import drop_begun
from dragoman.parsing.quoted_calls import Examples, starts_line
from dragoman.parsing.sink import CallSink, ForwardingSink, ReadCall
from dragoman.parsing.trailing_json import OBJECTS, STARTS, trailing_calls
from dragoman.parsing.untagged_json import NO_TAG, Tag, bare_calls
from dragoman.text.scanner import SPACE, Parser, Scanner, markers


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers of a format."""

    calls: Mapping[str, ReadCall]
    """By what opens them."""
    thoughts: Mapping[str, str]
    """What opens them, what closes them."""
    section: tuple[str, str] = ("", "")
    """What stands around all calls; between the calls in it there is nothing to read."""
    name_end: str = ""
    """What stands behind a call's name; if given, a call in a section may lack its opener."""
    closers: tuple[str, ...] = ()
    """What ends a call; behind one it closes nothing and is dropped with a warning."""
    invented: tuple[str, ...] = ()
    """How results are shown to the model: behind a call, one that it writes itself is made up."""
    frames: tuple[str, ...] = ()
    """What stands around an answer and says nothing; thoughts may begin behind it."""
    boxes: tuple[str, ...] = ()
    """What stands around a part of an answer and says nothing."""
    verbatim: bool = False
    """White space next to a marker is the model's own text, not framing."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What stands around the answer; opened where thoughts could be, closed where nothing but calls may follow."""
    bare: Mapping[str, ReadCall] = field(default_factory=dict)
    """By the first character of a reply, thoughts aside: calls that nothing opens."""
    tag: Tag = NO_TAG
    """What stands around a call, where small models write plain JSON in its stead, and where calls may stand in code:
    such calls are examples."""

    @property
    def marks(self) -> tuple[str, ...]:
        """All of them that have a word in them, and so are none that stands in ordinary text."""
        pairs = (*self.thoughts.items(), *self.answers.items(), self.section)
        lists = (tuple(self.calls), self.closers, self.invented, self.frames, self.boxes)
        marks = dict.fromkeys(mark.strip() for marks in (*pairs, *lists) for mark in marks)
        return tuple(mark for mark in marks if any(map(str.isalpha, mark)))

    @property
    def _openers(self) -> tuple[str, ...]:
        """What begins a call, or the section of all."""
        return tuple(filter(None, (*self.calls, self.section[0])))

    @property
    def _control(self) -> tuple[str, ...]:
        """What begins reasoning anywhere, and what ends it: tokens that no prose has."""
        return tuple(mark for pair in self.thoughts.items() for mark in pair if is_control(mark))

    @property
    def _answer_starts(self) -> tuple[str, ...]:
        """What ends open reasoning, as only an answer has it."""
        return tuple(mark for mark in (*self.frames, *self.answers) if is_control(mark))

    @property
    def _thought_closers(self) -> tuple[str, ...]:
        """What a model still writes where a call has ended its thoughts; not what could be prose."""
        return tuple(closer for closer in self.thoughts.values() if not closer[0].isalpha())

    def read(self, s: Scanner, sink: CallSink) -> Parser[None]:
        """One reply."""
        s.call_ends = tuple(filter(None, (*self.closers, *self.section[1:], *self.tag[1:])))
        s.after_call = tuple(filter(None, (*self.calls, self.section[0], *self.tag[:1], *self.frames)))
        yield from self._stray_thoughts(s, sink)
        said = yield from self._thoughts(s, sink)
        more = True
        while more:
            line = s.offset
            found = ""
            if not sink.calls:
                found, said = yield from self._bare_calls(s, sink)
            closer = "" if found or said else (yield from self._answer(s))
            more = yield from self._rest(s, sink, found, said, closer, line)

    def read_rest(self, s: Scanner, sink: CallSink, said: bool) -> Parser[None]:
        """The rest of a reply, from behind a call, or behind text that came of one; up to what ends a draft."""
        said = said or (yield from self._thoughts(s, sink))
        closer = "" if said else (yield from self._answer(s))
        yield from self._rest(s, sink, "", said, closer, s.offset)

    def _rest(self, s: Scanner, sink: CallSink, found: str, said: bool, closer: str, line: int) -> Parser[bool]:
        """What comes now, where `found` has been found, or text has been `said`, in what `closer` ends.

        Whether there is more: the reasoning in which all this was a draft has ended.
        """
        openers, answers = self._openers, tuple(self.answers.values())
        examples = Examples(s, sink, openers, self.tag) if self.tag[0] else None
        trailing = self._trailing(sink)
        while not sink.is_over:
            if not found:
                if sink.calls and not said:
                    yield from drop_begun(s, sink, *filter(None, (*self.closers, *self.section[1:])))
                at = s.offset
                found = yield from self._text(s, sink, self._wanted(sink, answers), said)
                said = said or s.offset - len(s.skipped_space + found) > at
            if not found or found == _closes_draft(sink):
                return (yield from _end_draft(s, sink, found))
            code = yield from self._code(s, sink, examples, trailing, found, line)
            if code is not None:
                found, said = "", code
                continue
            first = s.offset - len(s.skipped_space + found) <= line
            if found in openers:
                said = yield from self._calls_here(s, sink, found, first)
                if said:
                    _cut_short(s, sink.text)
            elif found in answers and found in (closer or found):
                found, said = yield from self._ends_answer(s, sink, found, openers)
                closer = closer if said else ""
                if found:
                    continue
            elif found in self.answers:  # talked about, and what closes it too
                sink.text(s.skipped_space + found)
                answers = ()
            else:
                said = self._framing(s, sink, found, said, first)
            found, said = "", said or (yield from self._thoughts(s, sink))
            line = line if said else s.offset
            closer = closer if said else closer or (yield from self._answer(s))
        return False

    def _wanted(self, sink: CallSink, answers: tuple[str, ...]) -> tuple[str, ...]:
        """What means something in an answer, in which these close it."""
        behind = (*self.closers, *self.invented, *self.section[1:], *self._thought_closers) if sink.calls else ()
        talked_about = tuple(self.answers) if answers else ()
        others = (FENCE if self.tag[0] else "", *self._trailing(sink), _closes_draft(sink), *behind)
        framing = (*self.frames, *self.boxes, *self._control)
        return (*self._openers, *framing, *answers, *talked_about, *filter(None, others))

    def _calls_here(self, s: Scanner, sink: CallSink, opener: str, first: bool) -> Parser[bool]:
        """What an opener begins, before which no text stands if it is the `first`; whether text came last."""
        if (yield from self._empty_block(s, sink, opener, first or "\n" in s.skipped_space)):
            return not first
        return not (yield from self.calls.get(opener, self.read_section)(s, sink, opener))

    def _framing(self, s: Scanner, sink: CallSink, found: str, said: bool, first: bool) -> bool:
        """A marker that begins no call and no answer; whether it stands in text."""
        if found in self.invented:
            sink.over("hallucinated_tool_result", f"the model wrote a tool result of its own: {found}", found)
            _keep_draft(s, sink)  # at once: the reader is not resumed after the piece that ends the reply
        elif found in self.boxes:
            sink.text("" if first else s.skipped_space)
            return not first
        elif found in self.thoughts:
            s.pos -= len(found)
            return False
        elif found in self.frames:
            return False
        else:
            sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
        return said

    def _empty_block(self, s: Scanner, sink: CallSink, opener: str, alone: bool) -> Parser[bool]:
        """Whether what would close a call comes right behind its opener; in a sentence these talk about markers."""
        if not self.closers or not (alone or is_control(opener)):
            return False
        closer = yield from s.literal(*self.closers, after_space=True)
        if closer:
            sink.warn("empty_call_section", f"dropped {opener.strip()} with no call behind it", opener + closer)
        return bool(closer)

    def _trailing(self, sink: CallSink) -> tuple[str, ...]:
        """What may begin calls in plain JSON that end the reply."""
        if not sink.lenient or sink.drafting:
            return ()
        return OBJECTS if FENCE in self._openers else STARTS

    @property
    def _ends(self) -> tuple[str, ...]:
        """What may stand behind the last call of a reply."""
        return (*self.closers, *self.frames, *self.boxes, *self.answers.values(), *filter(None, self.section[1:]))

    def _code(
        self, s: Scanner, sink: CallSink, examples: Examples | None, trailing: tuple[str, ...], found: str, line: int
    ) -> Parser[bool | None]:
        """Code or JSON that this marker begins, as text, or as calls that end the reply; whether text came last.

        None: it begins neither.
        """
        begins = found in trailing
        if begins and (found in OBJECTS or starts_line(s, line)):
            gap, size = s.skipped_space, len(found) - (found in OBJECTS)
            s.pos -= size
            said = yield from trailing_calls(s, sink, gap + found[:-size], self._ends, self.tag)
            if said is not None:
                return said
            s.pos, s.skipped_space = s.pos + size, gap
        if examples and found not in OBJECTS:
            return True if (yield from examples.read(found, line)) else None
        if begins:
            sink.text(s.skipped_space + found)
        return True if begins else None

    def _bare_calls(self, s: Scanner, sink: CallSink) -> Parser[tuple[str, bool]]:
        """Calls that nothing opens, if they come next; what opens one after all, and whether text came last."""
        first = (yield from s.peek(after_space=True)) if self.bare else ""
        if first not in self.bare:
            return "", sink.lenient and (yield from bare_calls(s, sink, self.tag))
        s.start_capture()
        openers = [opener for opener in self.calls if opener[0] == first]
        found = (yield from s.literal(*openers, after_space=True)) if openers else ""
        s.skipped_space = s.captured().removesuffix(found)
        s.stop_capture()
        return found, not found and not (yield from self.bare[first](s, sink, ""))

    def _answer(self, s: Scanner) -> Parser[str]:
        """What closes the answer, where its frame comes next."""
        opened = (yield from s.literal(*self.answers, after_space=True)) if self.answers else ""
        if opened:
            yield from s.skip_space()
        return self.answers[opened] if opened else ""

    def _ends_answer(
        self, s: Scanner, sink: CallSink, closer: str, openers: tuple[str, ...]
    ) -> Parser[tuple[str, bool]]:
        """What opens a call right behind; whether more text comes, so that this was part of the answer."""
        gap, s.skipped_space = s.skipped_space, ""
        found = yield from s.literal(*openers, after_space=True)
        more = not found and bool((yield from s.peek(after_space=True)))
        if more:
            sink.text(gap + closer)
        return found, more

    def _text(self, s: Scanner, sink: CallSink, wanted: tuple[str, ...], said: bool) -> Parser[str]:
        if self.verbatim and not self._trailing(sink):
            s.skipped_space = ""
            return (yield from s.verbatim_until(markers(*wanted), sink.text))
        found = yield from s.until(markers(*wanted), sink.text, said)
        if self.verbatim and found not in STARTS:
            sink.text(s.skipped_space)
            s.skipped_space = ""
        return found

    def read_section(self, s: Scanner, sink: CallSink, _: str) -> Parser[bool]:
        """The calls of a section; whether what came last is none of the model's text."""
        return not (yield from self._section(s, sink))

    def _section(self, s: Scanner, sink: CallSink) -> Parser[bool]:
        """The calls of a section, and what closes it; whether what came last is text.

        What is no call is noise where a call came, text where one failed or none came.
        """
        before, noise = s.skipped_space + self.section[0], list[str]()
        any_call = failed = False
        while (found := (yield from self._next(s, sink, sink.text if failed else noise.append))) in ("", *self.calls):
            if noise:
                sink.warn("text_between_calls_dropped", "dropped text between calls", "".join(noise))
                noise.clear()
            s.skipped_space = "" if any_call else s.skipped_space if failed else before + s.skipped_space
            reader = self.calls[found] if found else next(iter(self.calls.values()))
            whole = yield from reader(s, sink, found)
            if whole and not found:
                sink.warn("missing_opening_tag", f"expected {next(iter(self.calls))} before the call")
            any_call, failed = any_call or whole, not whole
            if failed:
                _cut_short(s, sink.text)
        return _section_end(s, sink, (before, "".join(noise), found or ""), any_call, failed)

    def _next(self, s: Scanner, sink: CallSink, emit: Callable[[str], None]) -> Parser[str | None]:
        """What opens the next call of a section ("" where that is missing) or closes it; None: it ends without."""
        closes = _closes_draft(sink)
        ends, s.skipped_space = (*self.calls, self.section[1], *filter(None, [closes])), ""
        name = (yield from s.field(markers(self.name_end, *ends))) if self.name_end else None
        s.pos -= len("".join(name or ()))
        if name and name[1] == self.name_end:
            return ""
        found = yield from s.until(markers(*ends), emit)
        s.pos -= len(found) if found == closes else 0
        return None if found in ("", closes) else found

    def _thoughts(self, s: Scanner, sink: CallSink) -> Parser[bool]:
        """Thoughts, if they come next, and calls that end them; whether text came last."""
        while opened := (yield from self._opens_thoughts(s, sink)):
            _keep_draft(s, sink)
            yield from s.skip_space()
            before = sink.calls
            whole = yield from self._think(s, sink, self.thoughts[opened])
            if sink.calls > before:
                if not whole:
                    return True
                continue
            yield from _blank_lines(s)
            yield from self._stray_thoughts(s, sink)
        return False

    def _opens_thoughts(self, s: Scanner, sink: CallSink) -> Parser[str]:
        """What opens reasoning, if it comes next; never after the end of the reply."""
        if sink.is_over or not self.thoughts:
            return ""
        return (yield from s.literal(*self.thoughts, after_space=True))

    def _stray_thoughts(self, s: Scanner, sink: CallSink) -> Parser[None]:
        """What closes reasoning where none is open: right behind it, or where the reply begins."""
        closers = self._thought_closers
        while found := (yield from s.literal(*closers, after_space=True)) if closers else "":
            sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
            yield from _blank_lines(s)

    def _think(self, s: Scanner, sink: CallSink, closer: str) -> Parser[bool]:
        """Thoughts up to what closes them, or to a call; whether that came whole. What is no call is a thought."""
        aside = _Aside(sink)
        ends = markers(closer, *self._openers, *self._answer_starts)
        said = False
        while (opener := (yield from s.until(ends, sink.reasoning, said))) not in (closer, ""):
            if opener in self._answer_starts:
                s.pos -= len(opener)
                return False
            s.start_draft(s.skipped_space + opener)
            sink.draft(closer)
            whole = yield from self.calls.get(opener, self.read_section)(s, aside, opener)
            if aside.begun:
                return whole
            if closer in s.draft():
                yield from _reread(s, sink, closer, said)
                return False
            _keep_draft(s, sink)
            _cut_short(s, sink.reasoning)
            said = True
        return False


class _Aside(ForwardingSink):
    """What is read within thoughts: text is of them, until a call has begun."""

    def __init__(self, sink: CallSink) -> None:
        self.sink = sink
        self.begun = False

    def start(self, name: str, id: str = "") -> None:
        """A call."""
        self.begun = True
        self.sink.start(name, id)

    def text(self, text: str) -> None:
        """What was no call."""
        if self.begun:
            self.sink.text(text)
        else:
            self.sink.reasoning(text)


def is_control(mark: str) -> bool:
    """Whether this marker is spelled as control tokens are, and so is never prose."""
    return mark.startswith("<") and ("|" in mark or "｜" in mark)


def _closes_draft(sink: CallSink) -> str:
    """What would close the reasoning in which a call stands that has been read, if there is one."""
    return sink.drafting.closer if sink.drafting else ""


def _keep_draft(s: Scanner, sink: CallSink) -> None:
    """Its calls are meant."""
    if sink.drafting:
        sink.settle(meant=True)
        s.stop_draft()


def _end_draft(s: Scanner, sink: CallSink, closer: str) -> Parser[bool]:
    """Decide on it where its reasoning is closed, or at the end of the text; whether it was no more than reasoning."""
    draft = sink.drafting
    if not draft:
        return False
    if closer:
        last = not (draft.said or draft.broken or (yield from s.peek(after_space=True))) and s.stopped_by_model
    else:
        last = s.stopped_by_model and not (draft.broken and draft.closer in s.draft())
    if last:
        _keep_draft(s, sink)
        if closer:
            sink.warn("stray_closing_tag", f"dropped {closer} that closes nothing", closer)
        return False
    kept = s.draft().removesuffix(closer)
    if closer and not (draft.broken and closer in kept):
        sink.settle(meant=False)
        sink.reasoning(kept.rstrip(SPACE))
        s.stop_draft()
    else:  # a call that is broken had no right to hide what closes the reasoning
        yield from _reread(s, sink, draft.closer, True)
    yield from _blank_lines(s)
    return True


def _reread(s: Scanner, sink: CallSink, closer: str, said: bool) -> Parser[None]:
    """Take a draft for reasoning, up to what closes that, wherever in the draft it stands."""
    sink.settle(meant=False)
    s.rewind()
    yield from s.until(markers(closer), sink.reasoning, said)


def _blank_lines(s: Scanner) -> Parser[None]:
    """Templates put a blank line behind reasoning."""
    while (yield from s.literal("\n", "\r\n")):
        pass


def _cut_short(s: Scanner, emit: Callable[[str], None]) -> None:
    """Emit all that is left of a text that a limit ended.

    Where that end alone decides that something is no call, what stands in it is not looked at again: had the text gone
    on, it could have been part of a call.
    """
    if s.closed and not s.stopped_by_model and s.pos < len(s.buf):
        rest, s.pos = s.buf[s.pos :], len(s.buf)
        emit(rest)


def _section_end(s: Scanner, sink: CallSink, raw: tuple[str, str, str], any_call: bool, failed: bool) -> bool:
    """Where a section is over, of which `raw` is what opens it, noise, what closes it; whether text came last."""
    opener, noise, closer = raw
    if any_call or failed:
        if noise:
            sink.warn("text_between_calls_dropped", "dropped text between calls", noise)
        if not any_call:
            sink.text(s.skipped_space + closer)
        return failed and not (any_call and closer)
    if noise and s.truncated:
        sink.warn("truncated_call", "the reply was cut off before the call had a name", opener + noise)
    elif noise:
        sink.text(opener + noise + s.skipped_space + closer)
    else:
        sink.warn("empty_call_section", f"dropped {opener.strip()} with no call behind it", opener + closer)
    return bool(noise)
