"""Calls in open reasoning: `parsing/reasoning_draft.py` says what a draft is, here it is kept, ended or read again."""

from collections.abc import Callable

from dragoman.parsing.sink import ToolCallSink
from dragoman.text.scanner import SPACE, Parser, Scanner, markers


def closes_draft(sink: ToolCallSink) -> str:
    """Returns the marker that would close the reasoning around the calls read so far, or ""."""
    return sink.current_draft.closer if sink.current_draft else ""


def keep_draft(s: Scanner, sink: ToolCallSink) -> None:
    """Accepts the calls of the draft."""
    if sink.current_draft:
        sink.settle_draft(is_reply=True)
        s.stop_draft()


def end_draft(s: Scanner, sink: ToolCallSink, closer: str) -> Parser[bool]:
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
        keep_draft(s, sink)
        if closer:
            sink.warn("stray_closing_tag", f"dropped {closer} that closes nothing", closer)
        return False
    text = s.draft().removesuffix(closer)
    if closer and not (draft.broken and closer in text):
        sink.settle_draft(is_reply=False)
        sink.reasoning(text.rstrip(SPACE))
        s.stop_draft()
    else:  # a broken call must not hide the marker that closes the reasoning
        yield from read_draft_again(s, sink, draft.closer, True)
    yield from skip_blank_lines(s)
    return True


def read_draft_again(s: Scanner, sink: ToolCallSink, closer: str, has_content: bool) -> Parser[None]:
    """Reads a draft again as reasoning, up to the first closing marker in it.

    Args:
        s: The scanner, which has kept the draft.
        sink: Receives the text.
        closer: The marker that closes the reasoning.
        has_content: Whether reasoning precedes the draft.
    """
    sink.settle_draft(is_reply=False)
    s.rewind()
    if (yield from s.until(markers(closer), sink.reasoning, has_content)):
        yield from skip_blank_lines(s)
        cut_short(s, sink.text)


def skip_blank_lines(s: Scanner) -> Parser[None]:
    """Skips the blank lines that templates put after reasoning."""
    while (yield from s.literal("\n", "\r\n")):
        pass


def cut_short(s: Scanner, emit: Callable[[str], None]) -> None:
    """Emits all that is left of a text that a length limit ended.

    Used where only that limit decides that something is not a call. The rest is not searched for calls: if the text had
    gone on, it could have been part of the call.
    """
    if s.closed and not s.stopped_by_model and s.pos < len(s.buf):
        rest, s.pos = s.buf[s.pos :], len(s.buf)
        emit(rest)
