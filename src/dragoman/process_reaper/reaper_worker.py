"""The process that terminates what a gateway left behind, after the gateway has exited; see `reaper`."""

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable

_POLITE_S = 6.0
"""Time to clean up after SIGTERM; no request waits for it, and a busy machine needs seconds."""


def reap_processes() -> None:
    """Reads groups and folders from standard input until it closes, then ends those that are left."""
    watched: dict[str, set[str]] = {"group": set(), "folder": set()}
    for line in sys.stdin:
        kind, _, name = line[1:].rstrip("\n").partition(" ")
        if line.startswith("+"):
            watched[kind].add(name)
        else:
            watched[kind].discard(name)
    _end(list(map(int, watched["group"])))
    for folder in watched["folder"]:
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
