"""The process that terminates what a gateway left behind, after the gateway has exited; see `reaper`."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable

_POLITE_S = 2.0


def reap_processes() -> None:
    """Reads groups from standard input until it closes, then terminates those that are left."""
    folders: dict[int, str] = {}
    for line in sys.stdin:
        pid, _, folder = line[1:].strip().partition(" ")
        if line.startswith("+"):
            folders[int(pid)] = folder
        else:
            folders.pop(int(pid), None)
    _end(list(folders))
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)


if sys.platform == "win32":  # no groups and no SIGTERM

    def _end(pids: list[int]) -> None:
        for pid in pids:
            _signal(os.kill, pid, signal.SIGTERM)

else:

    def _end(pids: list[int]) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            pids = [pid for pid in pids if _signal(os.killpg, pid, sign)]
            until_s = time.monotonic() + _POLITE_S
            while sign == signal.SIGTERM and any(_signal(os.killpg, p, 0) for p in pids) and time.monotonic() < until_s:
                time.sleep(0.05)


def _signal(send_signal: Callable[[int, int], None], pid: int, sign: int) -> bool:
    """Sends a signal; returns whether the process or group still exists."""
    try:
        send_signal(pid, sign)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    reap_processes()
