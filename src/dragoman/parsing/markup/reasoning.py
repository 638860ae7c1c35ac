"""Reasoning at the start of a reply or after a call, and the calls that end it."""

from dragoman.parsing.markup import Markup
from dragoman.parsing.markup.drafts import cut_short, keep_draft, read_draft_again, skip_blank_lines
from dragoman.parsing.markup.section import call_reader
from dragoman.parsing.sink import ReasoningSink, ToolCallSink
from dragoman.text.scanner import Parser, Scanner, markers


def read_reasoning(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Reads reasoning, if it comes next, and the calls that end it. Returns True if text came last."""
    while opened := (yield from _opens_reasoning(markup, s, sink)):
        keep_draft(s, sink)
        yield from s.skip_space()
        before = sink.calls
        is_complete = yield from _read_reasoning_body(markup, s, sink, markup.reasoning_tags[opened])
        if sink.calls > before:
            if not is_complete:
                return True
            continue
        yield from skip_blank_lines(s)
        yield from drop_stray_closers(markup, s, sink)
    return False


def _opens_reasoning(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[str]:
    """Returns the marker that opens reasoning, if it comes next; "" after the end of the reply."""
    if sink.finished or not markup.reasoning_tags:
        return ""
    return (yield from s.literal(*markup.reasoning_tags, after_space=True))


def drop_stray_closers(markup: Markup, s: Scanner, sink: ToolCallSink) -> Parser[None]:
    """Drops markers that close reasoning where none is open: right after it, or at the start of the reply."""
    closers = markup.reasoning_closers
    while found := (yield from s.literal(*closers, after_space=True)) if closers else "":
        sink.warn("stray_closing_tag", f"dropped {found} that closes nothing", found)
        yield from skip_blank_lines(s)


def _read_reasoning_body(markup: Markup, s: Scanner, sink: ToolCallSink, closer: str) -> Parser[bool]:
    """Reads reasoning up to its closing marker or to a call. Returns True if that was complete. Text that is not a
    call is reasoning."""
    aside = ReasoningSink(sink)
    ends = markers(closer, *markup.openers, *markup.answer_starts)
    has_content = False
    while (opener := (yield from s.until(ends, sink.reasoning, has_content))) not in (closer, ""):
        if opener in markup.answer_starts:
            s.pos -= len(opener)
            return False
        s.start_draft(s.skipped_space + opener)
        sink.begin_draft(closer)
        is_complete = yield from call_reader(markup, opener)(s, aside, opener)
        if aside.has_started:
            return is_complete
        if closer in s.draft():
            yield from read_draft_again(s, sink, closer, has_content)
            return False
        keep_draft(s, sink)
        cut_short(s, sink.reasoning)
        has_content = True
    return False
