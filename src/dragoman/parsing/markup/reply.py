"""Reads a reply: its reasoning, then its answer, in which markers begin and end calls."""

from dataclasses import dataclass, field
from functools import partial

from dragoman.parsing.markup import Markup, is_control_token
from dragoman.parsing.markup.drafts import closes_draft, cut_short, end_draft, keep_draft
from dragoman.parsing.markup.reasoning import drop_stray_closers, read_reasoning
from dragoman.parsing.markup.section import call_reader
from dragoman.parsing.sink import ReadReply, ToolCallSink, drop_partial_closer
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.parsing.untagged.quoted_calls import QuotedCallReader, starts_line
from dragoman.parsing.untagged.trailing_json import OBJECTS, STARTS, read_trailing_calls
from dragoman.parsing.untagged.untagged_json import read_untagged_calls
from dragoman.text.scanner import Parser, Scanner, markers


def reply_reader(markup: Markup) -> ReadReply:
    """Returns the reader of replies with these markers."""
    return partial(_read_reply, markup)


def _read_reply(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[None]:
    s.call_ends = tuple(filter(None, (*markup.closers, *markup.section[1:], *markup.example_tag[1:])))
    s.after_call = tuple(
        filter(None, (*markup.calls, markup.section[0], *markup.example_tag[:1], *markup.ignored_wrappers))
    )
    yield from drop_stray_closers(markup, s, sink)
    has_content = yield from read_reasoning(markup, s, sink)
    more = True
    while more:
        line = s.offset
        found = ""
        if not sink.calls:
            found, has_content = yield from _read_untagged_calls(markup, s, sink)
        closer = "" if found or has_content else (yield from _open_answer(markup, s))
        more = yield from _AnswerReader(markup, s, sink, line, found, has_content, closer).read()


def read_rest(markup: Markup, s: Scanner, sink: ToolCallSink, has_content: bool) -> Parser[None]:
    """Reads the rest of a reply after a call, or after text that looked like one, up to the end of a draft.

    Args:
        markup: The markers of the reply.
        s: The scanner, after the call.
        sink: Receives the events.
        has_content: Whether text came last.
    """
    has_content = has_content or (yield from read_reasoning(markup, s, sink))
    closer = "" if has_content else (yield from _open_answer(markup, s))
    yield from _AnswerReader(markup, s, sink, s.offset, "", has_content, closer).read()


def _read_untagged_calls(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[tuple[str, bool]]:
    """Reads calls without an opener, if they come next. Returns an opener that follows after all, and whether text came
    last."""
    first = (yield from s.peek(after_space=True)) if markup.untagged_calls else ""
    if first not in markup.untagged_calls:
        return "", sink.lenient and (yield from read_untagged_calls(s, sink, markup.example_tag))
    s.start_capture()
    openers = [opener for opener in markup.calls if opener[0] == first]
    found = (yield from s.literal(*openers, after_space=True)) if openers else ""
    s.skipped_space = s.captured().removesuffix(found)
    s.stop_capture()
    return found, not found and not (yield from markup.untagged_calls[first](s, sink, ""))


def _open_answer(markup: Markup, s: Scanner) -> Parser[str]:
    """Returns what closes the answer, if its opening marker comes next."""
    opened = (yield from s.literal(*markup.answer_wrappers, after_space=True)) if markup.answer_wrappers else ""
    if opened:
        yield from s.skip_space()
    return markup.answer_wrappers[opened] if opened else ""


@dataclass(slots=True)
class _AnswerReader:
    """Reads on after the reasoning and the untagged calls at the start of a reply."""

    markup: Markup
    s: Scanner
    sink: ToolCallSink
    line: int
    """The offset where text begins without a line break before it."""
    found: str
    """The marker that was read; "" if text comes next."""
    has_content: bool
    """Whether text came last."""
    closer: str
    """What closes the answer; "" if it is not open."""
    openers: tuple[str, ...] = field(init=False)
    always: tuple[str, ...] = field(init=False)
    """Markers that mean something anywhere in an answer."""
    answer_closers: tuple[str, ...] = field(init=False)
    """Markers that close an answer; empty after text that mentions one that opens it."""
    examples: QuotedCallReader | None = field(init=False)
    trailing: tuple[str, ...] = field(init=False)
    """What may begin calls in plain JSON, when this began."""

    def __post_init__(self) -> None:
        markup, tag = self.markup, self.markup.example_tag
        self.openers = markup.openers
        self.always = (*self.openers, *markup.ignored_wrappers, *markup.boxes, *markup.control_tokens)
        self.answer_closers = tuple(markup.answer_wrappers.values())
        self.examples = QuotedCallReader(self.s, self.sink, self.openers, tag) if tag[0] else None
        self.trailing = self._trailing()

    def read(self) -> Parser[bool]:
        """Returns True if the reply goes on, because the reasoning that made all this a draft has ended."""
        s, sink = self.s, self.sink
        while not sink.finished:
            if not self.found:
                yield from self._read_text()
            if not self.found or self.found == closes_draft(sink):
                return (yield from end_draft(s, sink, self.found))
            code = yield from self._read_code()
            if code is not None:
                self.found, self.has_content = "", code
                continue
            # Not in `_read_marker`: each chunk within a call resumes all generators around it.
            yield from (self._read_calls() if self.found in self.openers else self._read_marker())
            if self.found:
                continue
            self.has_content = self.has_content or (yield from read_reasoning(self.markup, s, sink))
            if not self.has_content:
                self.line = s.offset
                self.closer = self.closer or (yield from _open_answer(self.markup, s))
        return False

    def _read_text(self) -> Parser[None]:
        """Reads text up to a marker that means something here."""
        s, sink = self.s, self.sink
        if sink.calls and not self.has_content:
            yield from drop_partial_closer(s, sink, *filter(None, (*self.markup.closers, *self.markup.section[1:])))
        at = s.offset
        expected = markers(*self._expected_markers())
        if self.markup.keep_whitespace and not self._trailing():
            s.skipped_space = ""
            self.found = yield from s.verbatim_until(expected, sink.text)
        else:
            self.found = yield from s.until(expected, sink.text, self.has_content)
            if self.markup.keep_whitespace and self.found not in STARTS:
                sink.text(s.skipped_space)
                s.skipped_space = ""
        self.has_content = self.has_content or s.offset - len(s.skipped_space + self.found) > at

    def _expected_markers(self) -> tuple[str, ...]:
        """Returns the markers that mean something in an answer."""
        markup, sink = self.markup, self.sink
        after: tuple[str, ...] = ()
        if sink.calls:
            after = (*markup.closers, *markup.result_markers, *markup.section[1:], *markup.reasoning_closers)
        talked_about = tuple(markup.answer_wrappers) if self.answer_closers else ()
        others = (FENCE if markup.example_tag[0] else "", *self._trailing(), closes_draft(sink), *after)
        return (*self.always, *self.answer_closers, *talked_about, *filter(None, others))

    def _trailing(self) -> tuple[str, ...]:
        """Returns what may begin calls in plain JSON that end the reply."""
        if not self.sink.lenient or self.sink.current_draft:
            return ()
        return OBJECTS if FENCE in self.openers else STARTS

    def _read_code(self) -> Parser[bool | None]:
        """Reads code or JSON that the marker begins, as text, or as calls that end the reply.

        Returns True if text came last; None if the marker begins neither.
        """
        s, sink, found = self.s, self.sink, self.found
        begins = found in self.trailing
        if begins and (found in OBJECTS or starts_line(s, self.line)):
            gap, size = s.skipped_space, len(found) - (found in OBJECTS)
            s.pos -= size
            before, ends = gap + found[:-size], self.markup.ends
            has_content = yield from read_trailing_calls(s, sink, before, ends, self.markup.example_tag)
            if has_content is not None:
                return has_content
            s.pos, s.skipped_space = s.pos + size, gap
        if self.examples and found not in OBJECTS:
            return True if (yield from self.examples.read(found, self.line)) else None
        if begins:
            sink.text(s.skipped_space + found)
        return True if begins else None

    def _read_marker(self) -> Parser[None]:
        """Handles a marker that does not begin a call. Sets `found` to an opener that directly follows, or to ""."""
        s, sink, found, self.found = self.s, self.sink, self.found, ""
        if found in self.answer_closers and found in (self.closer or found):
            yield from self._end_answer(found)
        elif found in self.markup.answer_wrappers:  # talked about, and what closes it too
            sink.text(s.skipped_space + found)
            self.answer_closers = ()
        else:
            self._drop_framing(found)

    def _read_calls(self) -> Parser[None]:
        """Reads what the opener in `found` begins."""
        s, sink, opener, self.found = self.s, self.sink, self.found, ""
        is_first = self._is_first(opener)
        if (yield from self._is_empty_block(opener, is_first or "\n" in s.skipped_space)):
            self.has_content = not is_first
        else:
            self.has_content = not (yield from call_reader(self.markup, opener)(s, sink, opener))
        if self.has_content:
            cut_short(s, sink.text)

    def _is_first(self, found: str) -> bool:
        """Whether no text precedes the marker that was just read."""
        return self.s.offset - len(self.s.skipped_space + found) <= self.line

    def _is_empty_block(self, opener: str, alone: bool) -> Parser[bool]:
        """Returns True if a closing marker directly follows the opener; in a sentence the two only mention markers."""
        closers = self.markup.closers
        if not closers or not (alone or is_control_token(opener)):
            return False
        closer = yield from self.s.literal(*closers, after_space=True)
        if closer:
            message = f"dropped {opener.strip()} with no call after it"
            self.sink.warn("empty_call_section", message, opener + closer)
        return bool(closer)

    def _end_answer(self, closer: str) -> Parser[None]:
        """Ends the answer, unless more text follows: then the marker was part of it."""
        s = self.s
        gap, s.skipped_space = s.skipped_space, ""
        self.found = yield from s.literal(*self.openers, after_space=True)
        self.has_content = not self.found and bool((yield from s.peek(after_space=True)))
        if self.has_content:
            self.sink.text(gap + closer)
        else:
            self.closer = ""

    def _drop_framing(self, found: str) -> None:
        """Handles a marker that begins neither a call nor an answer."""
        s, sink, markup = self.s, self.sink, self.markup
        if found in markup.result_markers:
            sink.end_reply("hallucinated_tool_result", f"the model wrote a tool result of its own: {found}", found)
            keep_draft(s, sink)  # at once: the reader is not resumed after the piece that ends the reply
        elif found in markup.boxes:
            is_first = self._is_first(found)
            sink.text("" if is_first else s.skipped_space)
            self.has_content = not is_first
        elif found in markup.reasoning_tags:
            s.pos -= len(found)
            self.has_content = False
        elif found in markup.ignored_wrappers:
            self.has_content = False
        else:
            sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
