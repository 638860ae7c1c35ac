"""Shutdown with an event loop without signal handlers and without process groups, as on Windows."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.cli.doctor import local
from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server import run
from support.scripted_backend import Scripted, plain

ENDING = [signal.SIGTERM, signal.SIGINT]


class WithoutSignals(asyncio.SelectorEventLoop):
    """An event loop without `add_signal_handler`, as on Windows."""

    def add_signal_handler(self, *_: object) -> None:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Restores the signal handlers of the process."""
    names = [name for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
    before = {getattr(signal, name): signal.getsignal(getattr(signal, name)) for name in names}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_signal_stops_gateway_without_loop_signal_support(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def announced(url: str) -> None:
        opened.append(url)
        signal.raise_signal(number)

    monkeypatch.setattr(run, "runner", lambda: asyncio.Runner(loop_factory=WithoutSignals))
    backend = Scripted(plain)
    assert run.run(Gateway([backend]), ServerConfig(port=0), announced) == 0
    assert len(opened) == 1


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_signal_wakes_event_loop(number: signal.Signals) -> None:
    """The signal wakes the loop, which does not wait for another event."""

    async def heard() -> int:
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        run.on_signals(loop, told.set_result)
        signal.raise_signal(number)
        assert not told.done(), "a handler runs between any two steps: nothing is changed in it"
        return int(await told)

    with asyncio.Runner(loop_factory=WithoutSignals) as runner:
        assert runner.run(heard()) == number


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def set_up() -> None:
        run.on_signals(asyncio.get_running_loop(), lambda number: None)

    with asyncio.Runner(loop_factory=WithoutSignals) as runner:
        runner.run(set_up())
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)


@pytest.mark.parametrize("platform", ["win32", "linux"])
async def test_hanging_agent_version_command_is_killed(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def remembered(*args: Any, **settings: Any) -> asyncio.subprocess.Process:
        started.append(await start(*args, **settings))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", remembered)
    monkeypatch.setattr(local, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(local, "_VERSION_S", 0.05)
    if platform == "win32":
        monkeypatch.delattr(os, "killpg")
    assert await local._version(str(program)) == ""
    (child,) = started
    assert child.returncode == -signal.SIGKILL
