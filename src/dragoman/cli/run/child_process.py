"""Runs the agent as a child process in the foreground: passes on signals, and follows its stop and its end."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from dragoman.core.errors import ConfigError

_FORWARDED_SIGNALS: Final = ("SIGTERM", "SIGHUP")
_TERMINALS: Final = ("SIGINT", "SIGQUIT")
"""The terminal sends them to the agent as well as to this process; they are for the agent."""
_SETTLE_S: Final = 0.1
"""A job that was stopped as a whole is continued within this time: then the agent is not reported as stopped."""


class InterruptedBySignal(Exception):
    """A signal arrived before there was an agent to pass it on to."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, which blocks the event loop, Ctrl-C raises at once; else it would wait for the loop.

    Raises: KeyboardInterrupt: it was pressed in the block or shortly before.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise KeyboardInterrupt
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ForegroundProcess:
    """Handles signals while a block runs, and passes them on to one child process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within the block signals are handled here: before the agent runs they end the block, then they are passed on.

        Raises: InterruptedBySignal: a signal ended the block.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def on_signal(number: int, for_agent: bool) -> None:
            if self._process is None:
                self._number = number
                task.cancel()
            elif for_agent:
                self._process.send_signal(number)

        numbers = {name: getattr(signal, name) for name in (*_FORWARDED_SIGNALS, *_TERMINALS) if hasattr(signal, name)}
        if sys.platform != "win32":
            for name, number in numbers.items():
                loop.add_signal_handler(number, on_signal, number, name in _FORWARDED_SIGNALS)
        try:
            yield
        except asyncio.CancelledError:
            if not self._number:
                raise
            raise InterruptedBySignal(self._number) from None

    async def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Starts the command, waits for its end, and returns its exit status as a shell does.

        Raises: ConfigError: it cannot be started.
        """
        try:
            self._process = subprocess.Popen(command, env=environ)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {(error.strerror or str(error)).lower()}") from None
        except ValueError as error:  # of a name in the user's settings
            raise ConfigError(f"{command[0]} cannot be started with these settings: {error}") from None
        code = await asyncio.to_thread(self._ended, self._process)
        return code if code >= 0 else 128 - code

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Waits for the end. If a terminal stops the child, this process stops too, as the shell waits for it."""
        if sys.platform == "win32" or not sys.stdin.isatty():
            return process.wait()
        status = _next_status(process.pid)
        while status is None or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            if status is None:  # it is still stopped
                os.kill(os.getpid(), signal.SIGTSTP)
                time.sleep(_SETTLE_S)  # until the signal has arrived
                os.kill(process.pid, signal.SIGCONT)
                status = _next_status(process.pid)
            elif os.WIFSTOPPED(status):
                time.sleep(_SETTLE_S)
                status = _next_status(process.pid, os.WNOHANG)
            else:
                status = _next_status(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode


def _next_status(pid: int, flags: int = 0) -> int | None:
    """Returns the next status of a child from `waitpid`, or None if there is none."""
    child, status = os.waitpid(pid, flags | os.WUNTRACED | os.WCONTINUED)
    return status if child else None
