"""What is told while a prompt is read: the line, the comment in the stream, the title of the terminal's window."""

import os
import pty
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dragoman.cli.run.status import Status
from dragoman.core.backend import ExchangeContext, PromptProgress
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.observe.prompt_progress import PromptProgressReport
from support.gateway import CHAT
from support.http_client import http_client
from support.scripted_backend import IMPATIENT, Scripted, body, serving


def test_the_time_left_is_that_of_what_is_not_in_the_cache() -> None:
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


def test_the_log_gets_a_line_now_and_then() -> None:
    times = iter([0.0, 5.0, 11.0, 12.0])
    reading = PromptProgressReport(clock=lambda: next(times))
    reading.observe(PromptProgress(0, 100))
    assert [reading.is_due() for _ in range(3)] == [False, True, False]


def test_at_the_end_there_is_nothing_to_show() -> None:
    shown: list[str] = []
    reading = PromptProgressReport(shown.append)
    reading.observe(PromptProgress(1, 2))
    reading.close()
    reading.close()
    assert shown[1:] == [""]
    assert reading.line == ""


class Slow(Scripted):
    """Reads its prompt in steps, each as long as a ping takes."""

    async def generate(self, request: Request, context: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        assert context.progress is not None
        for done in (0, 256, 512):
            context.progress(PromptProgress(done, 600))
            await self.pause(request)
        context.progress(PromptProgress(600, 600))
        yield Start(context.id, "m", 0)
        yield TextDelta("Hello")
        yield Finish("stop")


async def nothing(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Finish("stop")


async def test_a_stream_has_comments_with_the_progress() -> None:
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


def test_the_title_of_the_window_and_the_file_have_the_line(terminal: int, tmp_path: Path) -> None:
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


def test_no_title_is_written_where_there_is_no_terminal_that_has_one(
    terminal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    status = Status(tmp_path / "progress")
    status.show("prompt 0/600 tokens")
    status.close()
    os.set_blocking(terminal, False)
    with pytest.raises(BlockingIOError):
        os.read(terminal, 99)


def test_a_terminal_that_was_closed_gets_no_title(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr("dragoman.cli.run.status.sys", SimpleNamespace(stderr=stream, stdout=stream))
        monkeypatch.setenv("TERM", "xterm-256color")
        status = Status(tmp_path / "progress")
        os.close(ours)
        status.show("prompt 0/600 tokens")
        status.close()
    assert (tmp_path / "progress").read_text() == "prompt 0/600 tokens\n"
