"""The terminal line that shows what the command is waiting for."""

import io

import pytest

from dragoman.cli import _terminal
from dragoman.cli._terminal import ProgressLine
from support.scripted_backend import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_line_is_overwritten_and_cleared_at_end() -> None:
    out = Terminal()
    with pytest.raises(KeyError), ProgressLine(out).showing("starting"):
        dict[str, str]()["broken"]
    assert out.getvalue() == "\r\x1b[Kstarting\r\x1b[K"


async def test_progress_line_counts_seconds_while_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_terminal, "_SOON_S", 0.0)
    monkeypatch.setattr(_terminal, "_EVERY_S", 0.001)
    out = Terminal()
    line = ProgressLine(out)
    with line.counting_seconds():
        line.print("loading")
        await eventually(lambda: out.getvalue().count("loading · 0 s") > 2)
        line.clear()
        shown = out.getvalue()
        line.clear()
        assert out.getvalue() == shown, "a cleared line is not cleared again"
    assert out.getvalue().endswith("\r\x1b[K")


async def test_progress_line_is_silent_if_not_a_terminal() -> None:
    out = io.StringIO()
    line = ProgressLine(out)
    with line.showing("starting"), line.counting_seconds():
        line.print("loading")
    assert out.getvalue() == ""


def test_update_changes_only_a_line_that_is_shown() -> None:
    out = Terminal()
    line = ProgressLine(out)
    with line.showing("starting"):
        line.update("loading")
    shown = out.getvalue()
    assert shown.endswith("\r\x1b[Kloading\r\x1b[K")
    line.update("loaded after the prompt was shown")
    assert out.getvalue() == shown
