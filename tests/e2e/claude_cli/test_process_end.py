"""All processes of the real Claude CLI are terminated, however the gateway ends."""

import asyncio
import contextlib
import os
import signal
import stat
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from bench import offline

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Start, TextDelta
from support.agents import NOWHERE
from support.claude_cli import fake
from support.gateway import MESSAGES, Gateway, ask, exists, running, until
from support.paths import DATA
from support.scripted_backend import Scripted, eventually, in_thread

TRACES: Final = DATA / "claude_cli"


async def endless(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """A response that starts and never finishes."""
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await asyncio.Event().wait()


def started_by(pid: int, word: str) -> list[int]:
    """Child processes with this word in their command lines."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [child.pid] if any(word in each for each in child.cmdline()) else []
    return found


@contextlib.contextmanager
def serving(home: Path) -> Iterator[Gateway]:
    """`dragoman serve` with the real Claude CLI and a model that never finishes."""
    with in_thread(endless) as url:
        login = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
        }
        claude = home / "claude"
        exported = "".join(f"export {name}={value}\n" for name, value in login.items())
        claude.write_text(f'#!/bin/sh\n{exported}exec {offline.claude_code()} "$@"\n')
        claude.chmod(stat.S_IRWXU)
        settings = {
            "embedded.enabled": "false",
            "claude_cli.command": claude,
            "claude_cli.models": "m",
            "claude_cli.warm_processes": 1,
            "server.graceful_shutdown_s": 0,
        }
        with running(home, "--claude-cli", settings=settings) as gateway:
            yield gateway


@contextlib.contextmanager
def answering(gateway: Gateway) -> Iterator[None]:
    """Runs the block during an unfinished response, while another process waits for the next request."""
    body = ask(MESSAGES, model="m", stream=True)
    with gateway.client() as client, client.stream("POST", MESSAGES, json=body) as answer:
        texts = answer.iter_text()  # dropping the iterator closes the response
        assert any("Hello" in text for text in texts)
        yield


def ends(gateway: Gateway, home: Path, pids: list[int]) -> None:
    until(lambda: not any(map(exists, pids)), f"the end of {pids}")
    until(lambda: not list(home.glob("dragoman-*")), "the end of their folders")
    assert not list(home.glob(".claude/sessions/*"))


def test_killed_gateway_leaves_no_claude_processes(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, answering(gateway):
        claudes = until(lambda: len(all := started_by(gateway.process.pid, "stream-json")) == 2 and all)
        keepers = started_by(gateway.process.pid, "reaper_worker")
        gateway.stop(signal.SIGKILL)
        ends(gateway, tmp_path, [*claudes, *keepers])


def test_killed_reaper_and_gateway_leave_no_claude_processes(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, answering(gateway):
        until(lambda: len(started_by(gateway.process.pid, "stream-json")) == 2)
        (keeper,) = started_by(gateway.process.pid, "reaper_worker")
        os.kill(keeper, signal.SIGKILL)
        with answering(gateway):
            claudes = until(lambda: len(all := started_by(gateway.process.pid, "stream-json")) == 3 and all)
            gateway.stop(signal.SIGKILL)
            ends(gateway, tmp_path, claudes)


def test_stopped_gateway_leaves_no_claude_processes(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway, answering(gateway):
        claudes = until(lambda: len(all := started_by(gateway.process.pid, "stream-json")) == 2 and all)
        keepers = started_by(gateway.process.pid, "reaper_worker")
        gateway.stop(signal.SIGTERM)
        ends(gateway, tmp_path, [*claudes, *keepers])


def test_client_disconnect_ends_claude_process(tmp_path: Path) -> None:
    with serving(tmp_path) as gateway:
        with answering(gateway):
            claudes = until(lambda: len(all := started_by(gateway.process.pid, "stream-json")) == 2 and all)
        until(lambda: sum(map(exists, claudes)) == 1, "the end of one, and the other waits")
        until(lambda: len(list(tmp_path.glob("dragoman-*"))) == 1, "the end of its folder")


async def test_cancellation_at_any_step_ends_claude_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancels after each event loop step: while the process starts, is configured, and responds."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = psutil.Process().children()
    command = fake.installed(tmp_path)
    fake.plan(command, TRACES / "hang.jsonl")
    config = ClaudeCliConfig(command=str(command), tool_mode="native", warm_processes=0)
    backend = ClaudeCliBackend(config, {"PATH": os.defpath, "HOME": str(tmp_path)})
    await backend.start()
    request = v.Request("opus", (v.Message("user", (v.Text("Hi"),)),))

    async def answer() -> None:
        async for _ in backend.generate(request, ExchangeContext("turn", 0, lambda: "id")):
            pass

    for steps in range(24):
        asking = asyncio.ensure_future(answer())
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: not backend.health()["processes"])
        assert backend.health()["active"] == 0
    await backend.close()
    assert psutil.Process().children() == before
    assert list(tmp_path.glob("dragoman-*")) == []
