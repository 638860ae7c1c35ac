"""What triggers a reload without a request: SIGHUP, and a change of the settings file."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

POLL_S: Final = 1.0
"""Time between two looks at the file. A change is read once two of them find the same, so not while it is written."""

_Stamp: TypeAlias = tuple[int, int, int] | None
"""What changes with each change of a file; None: there is no file."""


class Terminal:
    """Distinguishes the SIGHUP of a closed terminal from one that was sent to reload the configuration."""

    def __init__(self, is_open: Callable[[], bool] | None = None) -> None:
        self._is_open = is_open or _has_terminal
        self.is_there = self._is_open()
        """Whether the process has had a terminal that was not closed."""
        self._was_missing = False

    def has_closed(self) -> bool:
        """Returns whether the terminal has just been closed; call it at each SIGHUP."""
        closed = self.is_there and not self._is_open()
        self.is_there = self.is_there and not closed
        return closed

    def poll(self) -> None:
        """Notices that the terminal was closed without a SIGHUP, as after `disown`: a later SIGHUP is a reload."""
        missing = self.is_there and not self._is_open()
        if missing and self._was_missing:  # twice, as the SIGHUP may arrive in a moment
            self.is_there = False
        self._was_missing = missing


class Triggers:
    """Waits for SIGHUP and changes of the settings file."""

    def __init__(
        self,
        path: Callable[[], Path | None],
        watches: bool,
        reload: Callable[[str], Awaitable[object]],
        on_terminal_closed: Callable[[], None],
        terminal: Terminal,
        poll_s: float = POLL_S,
    ) -> None:
        """Args:
        path: returns the settings file; None: there is none.
        watches: whether a change of the file is a trigger.
        reload: reloads the configuration; its argument is the cause, for the log.
        on_terminal_closed: called if the terminal of the gateway was closed.
        terminal: the terminal of the gateway.
        poll_s: time between two looks at the file.
        """
        self._path, self._watches, self._reload = path, watches, reload
        self._on_terminal_closed, self._terminal, self._poll_s = on_terminal_closed, terminal, poll_s
        self._hung_up = asyncio.Event()
        self._stamp = self._latest = read_stamp(path())

    def on_sighup(self) -> None:
        """Call it when SIGHUP arrives; also before `run`."""
        if self._terminal.has_closed():
            self._on_terminal_closed()
        else:
            self._hung_up.set()

    async def run(self) -> None:
        """Reloads at each trigger, until it is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if self._watches or self._terminal.is_there else None):
                    await self._hung_up.wait()
            self._terminal.poll()
            if self._hung_up.is_set():
                self._hung_up.clear()
                self._stamp = self._latest = await self._read()
                await self._reload("SIGHUP")
            elif self._watches and self._has_changed(await self._read()):
                await self._reload("the settings file has changed")

    async def _read(self) -> _Stamp:
        return await asyncio.to_thread(lambda: read_stamp(self._path()))  # the file system may be a remote one

    def _has_changed(self, stamp: _Stamp) -> bool:
        """Returns whether the file is another one than at the last reload, and no longer being written."""
        before, self._latest = self._latest, stamp
        if stamp == self._stamp or stamp != before or stamp is None:  # an editor may replace it in a moment
            return False
        self._stamp = stamp
        return True


def sighup_is_ignored() -> bool:
    """Returns whether SIGHUP is ignored, as for programs that are started with nohup."""
    return hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def read_stamp(path: Path | None) -> _Stamp:
    """Returns what changes with each change of the file."""
    try:
        found = path.stat() if path else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
