"""The time in log lines: `2026-11-25T16:58:01.250Z`."""

import time

_latest: tuple[int, str] = (0, "1970-01-01T00:00:00")


def timestamp(at_s: float) -> str:
    """Returns the time in UTC, to the millisecond; `at_s`: seconds since 1970."""
    global _latest
    whole_s = int(at_s)
    known_s, text = _latest
    if known_s != whole_s:  # most lines follow another one of the same second
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole_s))
        _latest = (whole_s, text)
    return f"{text}.{int((at_s - whole_s) * 1000):03d}Z"
