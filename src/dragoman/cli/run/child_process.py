"""The agent as a child that has the terminal: its signals, its stops, its end."""

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

_PASSED_ON: Final = ("SIGTERM", "SIGHUP")
_TERMINALS: Final = ("SIGINT", "SIGQUIT")
"""The terminal sends them to the agent as well as to us, and they are for the agent."""
_SETTLE_S: Final = 0.1
"""Within which a whole job that was stopped is gone on with: then the agent's stop is no news."""


class InterruptedBySignal(Exception):
    """A signal came before there was an agent to pass it on to."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, which holds up the event loop, Ctrl-C ends it; else that would wait for the loop.

    Raises: KeyboardInterrupt: it came, in the block or shortly before it.
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
    """The signals of this process while a block runs, and the one child that gets them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Within the block they are ours: before the agent runs they end the block, then they are the agent's.

        Raises: InterruptedBySignal: one of them has ended it.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def came(number: int, for_agent: bool) -> None:
            if self._process is None:
                self._number = number
                task.cancel()
            elif for_agent:
                self._process.send_signal(number)

        numbers = {name: getattr(signal, name) for name in (*_PASSED_ON, *_TERMINALS) if hasattr(signal, name)}
        if sys.platform != "win32":
            for name, number in numbers.items():
                loop.add_signal_handler(number, came, number, name in _PASSED_ON)
        try:
            yield
        except asyncio.CancelledError:
            if not self._number:
                raise
            raise InterruptedBySignal(self._number) from None

    async def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Start it and wait for its end; its exit status as a shell has it.

        Raises: ConfigError: it cannot be started.
        """
        try:
            self._process = subprocess.Popen(command, env=environ)
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {(error.strerror or str(error)).lower()}") from None
        except ValueError as error:  # of a name in somebody's settings
            raise ConfigError(f"{command[0]} cannot be started with these settings: {error}") from None
        code = await asyncio.to_thread(self._ended, self._process)
        return code if code >= 0 else 128 - code

    def _ended(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for it. Where it is stopped in a terminal we stop too, as the shell waits for us alone."""
        if sys.platform == "win32" or not sys.stdin.isatty():
            return process.wait()
        status = _next(process.pid)
        while status is None or os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            if status is None:  # it is still stopped
                os.kill(os.getpid(), signal.SIGTSTP)
                time.sleep(_SETTLE_S)  # until that has been taken
                os.kill(process.pid, signal.SIGCONT)
                status = _next(process.pid)
            elif os.WIFSTOPPED(status):
                time.sleep(_SETTLE_S)
                status = _next(process.pid, os.WNOHANG)
            else:
                status = _next(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode


def _next(pid: int, flags: int = 0) -> int | None:
    """What becomes of a child next, as `waitpid` tells it; None: nothing has."""
    found, status = os.waitpid(pid, flags | os.WUNTRACED | os.WCONTINUED)
    return status if found else None
