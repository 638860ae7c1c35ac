"""The process that outlives this program for a moment, to end what it left; see `keeper`."""

import os
import signal
import sys
import time

_POLITE_S = 2.0


def keep() -> None:
    """What the small process does."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for group in list(groups):
            try:
                os.killpg(group, sign)
            except OSError:
                groups.discard(group)
        until_s = time.monotonic() + _POLITE_S
        while sign == signal.SIGTERM and any(map(_is_there, groups)) and time.monotonic() < until_s:
            time.sleep(0.05)


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    keep()
