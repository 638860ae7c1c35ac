"""What triggers a reload without a request: SIGHUP, and a change of the settings file."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dragoman.server.reload.control import ReloadControl

log = logging.getLogger("dragoman.serve")

_HAS_SIGHUP: Final = hasattr(signal, "SIGHUP")
POLL_S: Final = 1.0
"""Time between two looks at the file. A change is read once two of them find the same, so not while it is written."""


class Terminal:
    """Distinguishes the SIGHUP of a closed terminal from one that was sent to reload the configuration."""

    def __init__(self, is_open: Callable[[], bool] | None = None) -> None:
        self._is_open = is_open or _has_terminal
        self.exists = self._is_open()
        """Whether the process has had a terminal that was not closed."""
        self._was_missing = False

    def has_closed(self) -> bool:
        """Returns whether the terminal has just been closed; call it at each SIGHUP."""
        closed = self.exists and not self._is_open()
        self.exists = self.exists and not closed
        return closed

    def poll(self) -> None:
        """Notices that the terminal was closed without a SIGHUP, as after `disown`: a later SIGHUP is a reload."""
        missing = self.exists and not self._is_open()
        if missing and self._was_missing:  # twice, as the SIGHUP may arrive in a moment
            self.exists = False
        self._was_missing = missing


class Triggers:
    """Waits for SIGHUP and changes of the settings file."""

    def __init__(
        self,
        control: ReloadControl,
        mode: str,
        stop: Callable[[int], None],
        terminal: Terminal | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """
        Args:
            control: reloads the configuration.
            mode: `server.reload`.
            stop: stops the gateway because of a signal.
            terminal: the terminal of the gateway; None: that of this process.
            poll_s: time between two looks at the file.
        """
        self._control, self._mode, self._stop, self._poll_s = control, mode, stop, poll_s
        self._terminal = terminal or Terminal()
        self._survives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN if _HAS_SIGHUP else True
        """Whether the gateway was started so that it outlives its terminal, as by nohup."""
        self._hung_up = asyncio.Event()
        self._latest = control.stamp

    def on_sighup(self) -> None:
        """Call it when SIGHUP arrives; also before `run`."""
        if not self._terminal.has_closed():
            self._hung_up.set()
        elif not self._survives_terminal:
            self._stop(signal.SIGHUP)

    async def run(self) -> None:
        """Reloads at each trigger, until it is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s if self._mode == "watch" or self._terminal.exists else None):
                    await self._hung_up.wait()
            self._terminal.poll()
            if self._hung_up.is_set():
                self._hung_up.clear()
                await self._on_reload_signal()
            elif self._mode == "watch" and self._has_changed():
                await self._control.reload("the settings file has changed")

    async def _on_reload_signal(self) -> None:
        if self._mode == "off":
            log.warning('SIGHUP: the configuration was not reloaded, as server.reload is "off"')
        else:
            await self._control.reload("SIGHUP")

    def _has_changed(self) -> bool:
        """Returns whether the file is another one than at the last reload, and no longer being written."""
        before, self._latest = self._latest, self._control.read_stamp()
        # Without a file it is not another one: an editor may replace it in a moment.
        return self._latest is not None and self._latest == before != self._control.stamp


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
