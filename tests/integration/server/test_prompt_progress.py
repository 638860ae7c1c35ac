"""Prompt progress: the status line, the comment in the stream, and the terminal's window title."""

import os
import pty
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dragoman.cli.run.status import Status
from dragoman.core.backend import EventStream, ExchangeContext, PromptProgress
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.observe.prompt_progress import PromptProgressReport
from support.gateway import CHAT
from support.http_client import http_client
from support.scripted_backend import IMPATIENT, Scripted, body, serving


def test_remaining_time_ignores_cached_tokens() -> None:
    clock = iter([0.0, 10.0, 10.0, 10.0, 20.0, 20.0]).__next__
    shown: list[str] = []
    reading = PromptProgressReport(shown.append, clock=clock)
    reading.observe(PromptProgress(1000, 3000))
    reading.observe(PromptProgress(2000, 3000, "4 of 13 tools offered"))
    reading.observe(PromptProgress(3000, 3000))
    assert shown == [
        "prompt 1000/3000 tokens",
        "prompt 2000/3000 tokens, about 10 s left; 4 of 13 tools offered",
        "",
    ]


def test_progress_is_logged_at_intervals() -> None:
    times = iter([0.0, 5.0, 11.0, 12.0])
    reading = PromptProgressReport(clock=lambda: next(times))
    reading.observe(PromptProgress(0, 100))
    assert [reading.is_due() for _ in range(3)] == [False, True, False]


def test_closed_report_clears_progress_line() -> None:
    shown: list[str] = []
    reading = PromptProgressReport(shown.append)
    reading.observe(PromptProgress(1, 2))
    reading.close()
    reading.close()
    assert shown[1:] == [""]
    assert reading.line == ""


class Slow(Scripted):
    """Reads its prompt in steps, each as long as a ping interval."""

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        assert context.progress is not None
        for done in (0, 256, 512):
            context.progress(PromptProgress(done, 600))
            await self.pause(request)
        context.progress(PromptProgress(600, 600))
        yield [Start(context.id, "m", 0), TextDelta("Hello"), Finish("stop")]


async def nothing(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Finish("stop")


async def test_stream_contains_progress_comments() -> None:
    backend, shown = Slow(nothing), list[str]()
    gateway = Gateway([backend])
    gateway.progress = shown.append
    async with serving(gateway, [], backend.ping_sent, 0, **IMPATIENT) as (_, url), http_client() as client:
        told = (await client.post(f"{url}{CHAT}", json=body() | {"model": "m"})).text
    comments = [line for line in told.splitlines() if line.startswith(": ") and "dragoman-progress" in line]
    assert any("prompt 256/600 tokens, about " in line for line in comments), told
    assert "Hello" in told
    assert shown[0] == "prompt 0/600 tokens"
    assert shown[-1] == ""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr("dragoman.cli.run.status.sys", SimpleNamespace(stderr=stream, stdout=stream))
        monkeypatch.setenv("TERM", "xterm-256color")
        yield ours
    os.close(ours)


def test_window_title_and_file_show_progress(terminal: int, tmp_path: Path) -> None:
    file = tmp_path / "progress"
    status = Status(file)
    status.show("prompt 0/600 tokens")
    assert file.read_text() == "prompt 0/600 tokens\n"
    status.show("")
    assert file.read_text() == ""
    shown = b""
    while not shown.endswith(b"2;\x07"):
        shown += os.read(terminal, 999)
    assert shown == b"\x1b]2;prompt 0/600 tokens\x07\x1b]2;\x07"
    assert [path.name for path in tmp_path.iterdir()] == ["progress"]


def test_dumb_terminal_gets_no_window_title(terminal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    status = Status(tmp_path / "progress")
    status.show("prompt 0/600 tokens")
    status.close()
    os.set_blocking(terminal, False)
    with pytest.raises(BlockingIOError):
        os.read(terminal, 99)


def test_closed_terminal_gets_no_window_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr("dragoman.cli.run.status.sys", SimpleNamespace(stderr=stream, stdout=stream))
        monkeypatch.setenv("TERM", "xterm-256color")
        status = Status(tmp_path / "progress")
        os.close(ours)
        status.show("prompt 0/600 tokens")
        status.close()
    assert (tmp_path / "progress").read_text() == "prompt 0/600 tokens\n"
