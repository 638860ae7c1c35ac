"""The structure of a reply as text, reasoning and calls, each opened by a marker.

    Plan.</think>Checking.<tool_call>…</tool_call>

A marker is recognised only where it can mean something: reasoning begins at the start of the reply or after a call, not
in prose; an unmatched closing marker is dropped only after a call. The format supplies the reader that continues after
an opener.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dragoman.parsing.sink import ReadCall, ReasoningSink, ToolCallSink, drop_partial_closer
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.parsing.untagged.quoted_calls import QuotedCallReader, starts_line
from dragoman.parsing.untagged.trailing_json import OBJECTS, STARTS, read_trailing_calls
from dragoman.parsing.untagged.untagged_json import NO_TAG, Tag, read_untagged_calls
from dragoman.text.scanner import SPACE, Parser, Scanner, markers


@dataclass(frozen=True, slots=True)
class Markup:
    """The markers of a format."""

    calls: Mapping[str, ReadCall]
    """Reader of a call by its opening marker."""
    reasoning_tags: Mapping[str, str]
    """Closing marker of reasoning by its opening marker."""
    section: tuple[str, str] = ("", "")
    """Markers around all calls; text between the calls in it is ignored."""
    name_end: str = ""
    """The marker after a call's name. If set, a call in a section may lack its opener."""
    closers: tuple[str, ...] = ()
    """Markers that end a call; an extra one after a call is dropped with a warning."""
    result_markers: tuple[str, ...] = ()
    """Markers of tool results in the prompt; after a call, a result that the model writes itself is fabricated."""
    ignored_wrappers: tuple[str, ...] = ()
    """Markers around an answer without a meaning of their own; reasoning may begin after them."""
    boxes: tuple[str, ...] = ()
    """Markers around a part of an answer without a meaning of their own."""
    keep_whitespace: bool = False
    """True if white space next to a marker is the model's own text, not framing."""
    answer_wrappers: Mapping[str, str] = field(default_factory=dict)
    """Closing marker of the answer by its opening marker. It opens where reasoning could begin, and closes where only
    calls may follow."""
    untagged_calls: Mapping[str, ReadCall] = field(default_factory=dict)
    """Readers of calls without an opener, by the first character of a reply (after any reasoning)."""
    example_tag: Tag = NO_TAG
    """The tags around a call, for formats whose small models write plain JSON instead, and in which calls in code are
    examples, not calls."""

    @property
    def marks(self) -> tuple[str, ...]:
        """All markers that contain a letter and so do not occur in ordinary text."""
        pairs = (*self.reasoning_tags.items(), *self.answer_wrappers.items(), self.section)
        lists = (tuple(self.calls), self.closers, self.result_markers, self.ignored_wrappers, self.boxes)
        marks = dict.fromkeys(mark.strip() for marks in (*pairs, *lists) for mark in marks)
        return tuple(mark for mark in marks if any(map(str.isalpha, mark)))

    @property
    def _openers(self) -> tuple[str, ...]:
        """Markers that begin a call or the section of calls."""
        return tuple(filter(None, (*self.calls, self.section[0])))

    @property
    def _control(self) -> tuple[str, ...]:
        """Markers that begin or end reasoning anywhere: control tokens, which prose does not contain."""
        return tuple(mark for pair in self.reasoning_tags.items() for mark in pair if is_control_token(mark))

    @property
    def _answer_starts(self) -> tuple[str, ...]:
        """Markers that end open reasoning, because only an answer has them."""
        return tuple(mark for mark in (*self.ignored_wrappers, *self.answer_wrappers) if is_control_token(mark))

    @property
    def _reasoning_closers(self) -> tuple[str, ...]:
        """Markers that a model still writes after a call has ended its reasoning, without those that could be prose."""
        return tuple(closer for closer in self.reasoning_tags.values() if not closer[0].isalpha())

    def read(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        """Reads one reply."""
        s.call_ends = tuple(filter(None, (*self.closers, *self.section[1:], *self.example_tag[1:])))
        s.after_call = tuple(
            filter(None, (*self.calls, self.section[0], *self.example_tag[:1], *self.ignored_wrappers))
        )
        yield from self._drop_stray_closers(s, sink)
        has_content = yield from self._read_reasoning(s, sink)
        more = True
        while more:
            line = s.offset
            found = ""
            if not sink.calls:
                found, has_content = yield from self._read_untagged_calls(s, sink)
            closer = "" if found or has_content else (yield from self._answer(s))
            more = yield from self._rest(s, sink, found, has_content, closer, line)

    def read_rest(self, s: Scanner, sink: ToolCallSink, has_content: bool) -> Parser[None]:
        """Reads the rest of a reply after a call, or after text that looked like one, up to the end of a draft."""
        has_content = has_content or (yield from self._read_reasoning(s, sink))
        closer = "" if has_content else (yield from self._answer(s))
        yield from self._rest(s, sink, "", has_content, closer, s.offset)

    def _rest(
        self, s: Scanner, sink: ToolCallSink, found: str, has_content: bool, closer: str, line: int
    ) -> Parser[bool]:
        """Reads on. `found` is a marker that was read, `closer` ends the answer, `has_content`: text came last.

        Returns True if the reply goes on, because the reasoning that made all this a draft has ended.
        """
        openers, answers = self._openers, tuple(self.answer_wrappers.values())
        examples = QuotedCallReader(s, sink, openers, self.example_tag) if self.example_tag[0] else None
        trailing = self._trailing(sink)
        while not sink.finished:
            if not found:
                if sink.calls and not has_content:
                    yield from drop_partial_closer(s, sink, *filter(None, (*self.closers, *self.section[1:])))
                at = s.offset
                found = yield from self._text(s, sink, self._wanted(sink, answers), has_content)
                has_content = has_content or s.offset - len(s.skipped_space + found) > at
            if not found or found == _closes_draft(sink):
                return (yield from _end_draft(s, sink, found))
            code = yield from self._code(s, sink, examples, trailing, found, line)
            if code is not None:
                found, has_content = "", code
                continue
            first = s.offset - len(s.skipped_space + found) <= line
            if found in openers:
                has_content = yield from self._calls_here(s, sink, found, first)
                if has_content:
                    _cut_short(s, sink.text)
            elif found in answers and found in (closer or found):
                found, has_content = yield from self._ends_answer(s, sink, found, openers)
                closer = closer if has_content else ""
                if found:
                    continue
            elif found in self.answer_wrappers:  # talked about, and what closes it too
                sink.text(s.skipped_space + found)
                answers = ()
            else:
                has_content = self._framing(s, sink, found, has_content, first)
            found, has_content = "", has_content or (yield from self._read_reasoning(s, sink))
            line = line if has_content else s.offset
            closer = closer if has_content else closer or (yield from self._answer(s))
        return False

    def _wanted(self, sink: ToolCallSink, answer_closers: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the markers that mean something in an answer; `answer_closers` close it."""
        after = (*self.closers, *self.result_markers, *self.section[1:], *self._reasoning_closers) if sink.calls else ()
        talked_about = tuple(self.answer_wrappers) if answer_closers else ()
        others = (FENCE if self.example_tag[0] else "", *self._trailing(sink), _closes_draft(sink), *after)
        framing = (*self.ignored_wrappers, *self.boxes, *self._control)
        return (*self._openers, *framing, *answer_closers, *talked_about, *filter(None, others))

    def _calls_here(self, s: Scanner, sink: ToolCallSink, opener: str, first: bool) -> Parser[bool]:
        """Reads what an opener begins; `first`: no text precedes it. Returns True if text came last."""
        if (yield from self._empty_block(s, sink, opener, first or "\n" in s.skipped_space)):
            return not first
        return not (yield from self.calls.get(opener, self.read_section)(s, sink, opener))

    def _framing(self, s: Scanner, sink: ToolCallSink, found: str, has_content: bool, first: bool) -> bool:
        """Handles a marker that begins neither a call nor an answer. Returns True if it occurs within text."""
        if found in self.result_markers:
            sink.end_reply("hallucinated_tool_result", f"the model wrote a tool result of its own: {found}", found)
            _keep_draft(s, sink)  # at once: the reader is not resumed after the piece that ends the reply
        elif found in self.boxes:
            sink.text("" if first else s.skipped_space)
            return not first
        elif found in self.reasoning_tags:
            s.pos -= len(found)
            return False
        elif found in self.ignored_wrappers:
            return False
        else:
            sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
        return has_content

    def _empty_block(self, s: Scanner, sink: ToolCallSink, opener: str, alone: bool) -> Parser[bool]:
        """Returns True if a closing marker directly follows the opener; in a sentence the two only mention markers."""
        if not self.closers or not (alone or is_control_token(opener)):
            return False
        closer = yield from s.literal(*self.closers, after_space=True)
        if closer:
            sink.warn("empty_call_section", f"dropped {opener.strip()} with no call behind it", opener + closer)
        return bool(closer)

    def _trailing(self, sink: ToolCallSink) -> tuple[str, ...]:
        """Returns what may begin calls in plain JSON that end the reply."""
        if not sink.lenient or sink.current_draft:
            return ()
        return OBJECTS if FENCE in self._openers else STARTS

    @property
    def _ends(self) -> tuple[str, ...]:
        """Markers that may follow the last call of a reply."""
        return (
            *self.closers,
            *self.ignored_wrappers,
            *self.boxes,
            *self.answer_wrappers.values(),
            *filter(None, self.section[1:]),
        )

    def _code(
        self,
        s: Scanner,
        sink: ToolCallSink,
        examples: QuotedCallReader | None,
        trailing: tuple[str, ...],
        found: str,
        line: int,
    ) -> Parser[bool | None]:
        """Reads code or JSON that this marker begins, as text, or as calls that end the reply.

        Returns True if text came last; None if the marker begins neither.
        """
        begins = found in trailing
        if begins and (found in OBJECTS or starts_line(s, line)):
            gap, size = s.skipped_space, len(found) - (found in OBJECTS)
            s.pos -= size
            has_content = yield from read_trailing_calls(s, sink, gap + found[:-size], self._ends, self.example_tag)
            if has_content is not None:
                return has_content
            s.pos, s.skipped_space = s.pos + size, gap
        if examples and found not in OBJECTS:
            return True if (yield from examples.read(found, line)) else None
        if begins:
            sink.text(s.skipped_space + found)
        return True if begins else None

    def _read_untagged_calls(self, s: Scanner, sink: ToolCallSink) -> Parser[tuple[str, bool]]:
        """Reads calls without an opener, if they come next. Returns an opener that follows after all, and whether text
        came last."""
        first = (yield from s.peek(after_space=True)) if self.untagged_calls else ""
        if first not in self.untagged_calls:
            return "", sink.lenient and (yield from read_untagged_calls(s, sink, self.example_tag))
        s.start_capture()
        openers = [opener for opener in self.calls if opener[0] == first]
        found = (yield from s.literal(*openers, after_space=True)) if openers else ""
        s.skipped_space = s.captured().removesuffix(found)
        s.stop_capture()
        return found, not found and not (yield from self.untagged_calls[first](s, sink, ""))

    def _answer(self, s: Scanner) -> Parser[str]:
        """Returns what closes the answer, if its opening marker comes next."""
        opened = (yield from s.literal(*self.answer_wrappers, after_space=True)) if self.answer_wrappers else ""
        if opened:
            yield from s.skip_space()
        return self.answer_wrappers[opened] if opened else ""

    def _ends_answer(
        self, s: Scanner, sink: ToolCallSink, closer: str, openers: tuple[str, ...]
    ) -> Parser[tuple[str, bool]]:
        """Returns the opener of a call that follows directly, and whether more text follows, so that the marker was
        part of the answer."""
        gap, s.skipped_space = s.skipped_space, ""
        found = yield from s.literal(*openers, after_space=True)
        more = not found and bool((yield from s.peek(after_space=True)))
        if more:
            sink.text(gap + closer)
        return found, more

    def _text(self, s: Scanner, sink: ToolCallSink, wanted: tuple[str, ...], has_content: bool) -> Parser[str]:
        if self.keep_whitespace and not self._trailing(sink):
            s.skipped_space = ""
            return (yield from s.verbatim_until(markers(*wanted), sink.text))
        found = yield from s.until(markers(*wanted), sink.text, has_content)
        if self.keep_whitespace and found not in STARTS:
            sink.text(s.skipped_space)
            s.skipped_space = ""
        return found

    def read_section(self, s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
        """Reads the calls of a section. Returns True unless text of the model came last."""
        return not (yield from self._section(s, sink))

    def _section(self, s: Scanner, sink: ToolCallSink) -> Parser[bool]:
        """Reads the calls of a section and its closing marker. Returns True if text came last.

        Text that is not a call is noise if a call was read, and text of the answer if a call failed or none was read.
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

    def _next(self, s: Scanner, sink: ToolCallSink, emit: Callable[[str], None]) -> Parser[str | None]:
        """Returns the opener of the next call in a section ("" if it is missing) or the closing marker; None if the
        section ends without."""
        closes = _closes_draft(sink)
        ends, s.skipped_space = (*self.calls, self.section[1], *filter(None, [closes])), ""
        name = (yield from s.field(markers(self.name_end, *ends))) if self.name_end else None
        s.pos -= len("".join(name or ()))
        if name and name[1] == self.name_end:
            return ""
        found = yield from s.until(markers(*ends), emit)
        s.pos -= len(found) if found == closes else 0
        return None if found in ("", closes) else found

    def _read_reasoning(self, s: Scanner, sink: ToolCallSink) -> Parser[bool]:
        """Reads reasoning, if it comes next, and the calls that end it. Returns True if text came last."""
        while opened := (yield from self._opens_reasoning(s, sink)):
            _keep_draft(s, sink)
            yield from s.skip_space()
            before = sink.calls
            whole = yield from self._read_reasoning_body(s, sink, self.reasoning_tags[opened])
            if sink.calls > before:
                if not whole:
                    return True
                continue
            yield from _blank_lines(s)
            yield from self._drop_stray_closers(s, sink)
        return False

    def _opens_reasoning(self, s: Scanner, sink: ToolCallSink) -> Parser[str]:
        """Returns the marker that opens reasoning, if it comes next; "" after the end of the reply."""
        if sink.finished or not self.reasoning_tags:
            return ""
        return (yield from s.literal(*self.reasoning_tags, after_space=True))

    def _drop_stray_closers(self, s: Scanner, sink: ToolCallSink) -> Parser[None]:
        """Drops markers that close reasoning where none is open: right after it, or at the start of the reply."""
        closers = self._reasoning_closers
        while found := (yield from s.literal(*closers, after_space=True)) if closers else "":
            sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
            yield from _blank_lines(s)

    def _read_reasoning_body(self, s: Scanner, sink: ToolCallSink, closer: str) -> Parser[bool]:
        """Reads reasoning up to its closing marker or to a call. Returns True if that was complete. Text that is not a
        call is reasoning."""
        aside = ReasoningSink(sink)
        ends = markers(closer, *self._openers, *self._answer_starts)
        has_content = False
        while (opener := (yield from s.until(ends, sink.reasoning, has_content))) not in (closer, ""):
            if opener in self._answer_starts:
                s.pos -= len(opener)
                return False
            s.start_draft(s.skipped_space + opener)
            sink.begin_draft(closer)
            whole = yield from self.calls.get(opener, self.read_section)(s, aside, opener)
            if aside.has_started:
                return whole
            if closer in s.draft():
                yield from _reread(s, sink, closer, has_content)
                return False
            _keep_draft(s, sink)
            _cut_short(s, sink.reasoning)
            has_content = True
        return False


def is_control_token(mark: str) -> bool:
    """Returns True if the marker has the form of a control token, which never occurs in prose."""
    return mark.startswith("<") and ("|" in mark or "｜" in mark)


def _closes_draft(sink: ToolCallSink) -> str:
    """Returns the marker that would close the reasoning around the calls read so far, or ""."""
    return sink.current_draft.closer if sink.current_draft else ""


def _keep_draft(s: Scanner, sink: ToolCallSink) -> None:
    """Accepts the calls of the draft."""
    if sink.current_draft:
        sink.settle_draft(is_reply=True)
        s.stop_draft()


def _end_draft(s: Scanner, sink: ToolCallSink, closer: str) -> Parser[bool]:
    """Decides on a draft where its reasoning is closed or the text ends. Returns True if it was only reasoning."""
    draft = sink.current_draft
    if not draft:
        return False
    if closer:
        last = (
            not (draft.text_after_call or draft.broken or (yield from s.peek(after_space=True))) and s.stopped_by_model
        )
    else:
        last = s.stopped_by_model and not (draft.broken and draft.closer in s.draft())
    if last:
        _keep_draft(s, sink)
        if closer:
            sink.warn("stray_closing_tag", f"dropped {closer} that closes nothing", closer)
        return False
    kept = s.draft().removesuffix(closer)
    if closer and not (draft.broken and closer in kept):
        sink.settle_draft(is_reply=False)
        sink.reasoning(kept.rstrip(SPACE))
        s.stop_draft()
    else:  # a broken call must not hide the marker that closes the reasoning
        yield from _reread(s, sink, draft.closer, True)
    yield from _blank_lines(s)
    return True


def _reread(s: Scanner, sink: ToolCallSink, closer: str, has_content: bool) -> Parser[None]:
    """Reads a draft again as reasoning, up to the first closing marker in it."""
    sink.settle_draft(is_reply=False)
    s.rewind()
    if (yield from s.until(markers(closer), sink.reasoning, has_content)):
        yield from _blank_lines(s)
        _cut_short(s, sink.text)


def _blank_lines(s: Scanner) -> Parser[None]:
    """Skips the blank lines that templates put after reasoning."""
    while (yield from s.literal("\n", "\r\n")):
        pass


def _cut_short(s: Scanner, emit: Callable[[str], None]) -> None:
    """Emits all that is left of a text that a length limit ended.

    Used where only that limit decides that something is not a call. The rest is not searched for calls: if the text had
    gone on, it could have been part of the call.
    """
    if s.closed and not s.stopped_by_model and s.pos < len(s.buf):
        rest, s.pos = s.buf[s.pos :], len(s.buf)
        emit(rest)


def _section_end(s: Scanner, sink: ToolCallSink, raw: tuple[str, str, str], any_call: bool, failed: bool) -> bool:
    """Handles the end of a section. `raw` is its opener, noise and closer. Returns True if text came last."""
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
