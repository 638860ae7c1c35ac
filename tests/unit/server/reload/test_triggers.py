"""What triggers a reload: SIGHUP, but not that of a closed terminal, and a changed file, but not one being written."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.server.reload.control import ConfigSource, Stamp, read_stamp
from dragoman.server.reload.triggers import Terminal, Triggers

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")


class Control:
    """Records reloads."""

    def __init__(self, path: Path) -> None:
        self.source = ConfigSource(lambda: path, {}, {}, False, read_stamp(path))
        self.stamp = self.source.stamp
        self.causes: asyncio.Queue[str] = asyncio.Queue()

    def read_stamp(self) -> Stamp:
        return read_stamp(self.source.path())

    async def reload(self, cause: str) -> None:
        self.stamp = self.read_stamp()
        self.causes.put_nowait(cause)


@asynccontextmanager
async def running(control: Any, mode: str, terminal: Terminal, stopped: list[int]) -> AsyncIterator[Triggers]:
    triggers = Triggers(control, mode, stopped.append, terminal, 0.001)
    task = asyncio.create_task(triggers.run())
    try:
        yield triggers
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.fixture
def terminal() -> "FakeTerminal":
    return FakeTerminal()


class FakeTerminal:
    """A terminal that the test closes."""

    def __init__(self) -> None:
        self.is_open = True
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.is_open


async def test_sighup_reloads_while_terminal_is_open(tmp_path: Path, terminal: FakeTerminal) -> None:
    control, stopped = Control(tmp_path / "config.toml"), list[int]()
    async with running(control, "signal", Terminal(terminal), stopped) as triggers:
        triggers.on_sighup()
        assert await control.causes.get() == "SIGHUP"
        assert not stopped
        terminal.is_open = False
        triggers.on_sighup()
        assert stopped == [signal.SIGHUP]


async def test_sighup_after_a_terminal_that_closed_silently_reloads(tmp_path: Path, terminal: FakeTerminal) -> None:
    """After `disown` the shell sends no SIGHUP; a later one is an administrator's."""
    control, stopped = Control(tmp_path / "config.toml"), list[int]()
    async with running(control, "signal", Terminal(terminal), stopped) as triggers:
        terminal.is_open = False
        looks = terminal.looks
        while terminal.looks < looks + 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        triggers.on_sighup()
        assert await control.causes.get() == "SIGHUP"
        assert not stopped


async def test_nohup_outlives_terminal(tmp_path: Path, terminal: FakeTerminal, ignored_sighup: None) -> None:
    control, stopped = Control(tmp_path / "config.toml"), list[int]()
    async with running(control, "signal", Terminal(terminal), stopped) as triggers:
        terminal.is_open = False
        triggers.on_sighup()
        triggers.on_sighup()
        assert await control.causes.get() == "SIGHUP"
        assert not stopped


@pytest.fixture
def ignored_sighup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_file_is_read_once_it_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    control = Control(path)
    triggers: Any = Triggers(control, "watch", lambda number: None, Terminal(lambda: False))  # type: ignore[arg-type]
    assert not triggers._has_changed()
    path.write_text("a")
    assert not triggers._has_changed()
    path.write_text("ab")
    assert not triggers._has_changed(), "it is still being written"
    assert triggers._has_changed()
    await control.reload("")
    assert not triggers._has_changed()
    path.unlink()
    assert not triggers._has_changed()
    assert not triggers._has_changed(), "an editor replaces it"
    path.write_text("abc")
    assert not triggers._has_changed()
    assert triggers._has_changed()


async def test_mode_off_does_not_reload(
    tmp_path: Path, terminal: FakeTerminal, caplog: pytest.LogCaptureFixture
) -> None:
    control = Control(tmp_path / "config.toml")
    async with running(control, "off", Terminal(terminal), []) as triggers:
        triggers.on_sighup()
        while "was not reloaded" not in caplog.text:
            await asyncio.sleep(0)
    assert control.causes.empty()
