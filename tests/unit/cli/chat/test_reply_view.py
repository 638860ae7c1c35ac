"""The view of a chat: what goes to which stream, and the line that says what the user waits for."""

import io

import pytest

from dragoman.cli.chat.reply_text import Palette
from dragoman.cli.chat.reply_view import Look, ReplyView
from dragoman.core.backend import PromptProgress
from dragoman.core.events import Notice, ReasoningDelta, TextDelta, ToolCallStart
from dragoman.core.messages import ToolCall, Usage

TERMINAL = Look(Palette(on=False), is_terminal=True, is_chat=True)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def new_view(look: Look = TERMINAL) -> tuple[ReplyView, io.StringIO, io.StringIO]:
    out, err = Terminal(), Terminal()
    return ReplyView(out, err, look), out, err


def test_progress_of_reading_is_shown_until_the_first_text() -> None:
    view, out, err = new_view()
    view.begin()
    assert err.getvalue().endswith("waiting for the model")
    view.on_progress(PromptProgress(1200, 7600))
    view.tick()
    assert err.getvalue().endswith("\rreading 1,200 of 7,600 tokens".replace("\r", "\r\x1b[K"))
    view.on_progress(PromptProgress(7600, 7600))
    view.tick()
    assert err.getvalue().endswith("waiting for the model")
    view.feed(TextDelta("Hello there"))
    assert err.getvalue().endswith("\r\x1b[K")
    size = len(err.getvalue())
    view.tick()
    assert len(err.getvalue()) == size
    view.close()
    assert out.getvalue() == "Hello there\n"


def test_hidden_reasoning_is_named_in_the_line() -> None:
    view, out, err = new_view(TERMINAL._replace(reasoning=False))
    view.begin()
    view.feed(ReasoningDelta("Let me see."))
    view.tick()
    assert err.getvalue().endswith("the model is reasoning")
    view.feed(ToolCallStart(0, "c", "add"))
    view.tick()
    assert err.getvalue().endswith("the model is writing a call of add")
    assert out.getvalue() == ""


def test_reasoning_and_reply_are_told_apart_without_colours() -> None:
    view, out, _ = new_view()
    view.begin()
    view.feed(ReasoningDelta("Let me see."))
    view.feed(TextDelta("Done."))
    view.close()
    assert out.getvalue() == "(reasoning)\nLet me see.\n\n(reply)\nDone.\n"


def test_pipe_gets_text_unchanged_and_rounds_are_separated() -> None:
    view, out, _ = new_view(Look(Palette(on=False)))
    for text in ("a\tb\x1b", "second"):
        view.begin()
        view.feed(ReasoningDelta("no"))
        view.feed(TextDelta(text))
        view.end(Usage(1, 1), 1.0, 0.5)
    assert out.getvalue() == "a\tb\x1b\n\nsecond\n"


def test_warning_is_shown_once_and_repairs_are_not() -> None:
    view, _, err = new_view()
    for _ in range(2):
        view.feed(Notice("content_dropped", "not shown: image", detail="image"))
        view.feed(Notice("call_repaired", "a brace"))
        view.on_warnings("content_dropped: image, estimated_usage, failed_over: a > b")
        view.tick()
    assert err.getvalue().splitlines() == [
        "dragoman: warning: content_dropped: not shown: image",
        "dragoman: warning: failed_over: a > b",
    ]
    assert len(view.warnings) == 2


def test_call_and_result_are_shortened_and_escaped() -> None:
    view, _, err = new_view()
    view.call(ToolCall("c", "write\x1b", '{"text": "' + "x" * 900 + '"}'), "files")
    view.result("line\n" * 200, is_error=False)
    view.result("closed", is_error=True)
    call, result, failure = err.getvalue().splitlines()
    assert call.startswith(r'→ write\x1b {"text": "xxx')
    assert call.endswith("… (512 more characters) (files)")
    assert result.startswith(r"← line\nline")
    assert result.endswith("more characters)")
    assert failure == "← error: closed"


@pytest.mark.parametrize(
    ("seconds", "first_s", "line"),
    [
        (4.0, 1.0, "  30 tokens · 10 tokens/s · 1,200 read (1,000 cached) · first token after 1.0 s"),
        (1.1, 1.0, "  30 tokens · 1,200 read (1,000 cached) · first token after 1.0 s"),
        (1.0, None, "  30 tokens · 1,200 read (1,000 cached)"),
    ],
)
def test_response_of_a_chat_has_a_summary(seconds: float, first_s: float | None, line: str) -> None:
    view, _, err = new_view()
    view.end(Usage(1200, 30, 1000), seconds, first_s)
    assert err.getvalue().splitlines() == [line]
