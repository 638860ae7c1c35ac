"""The state of a circuit breaker in a file that all processes of a gateway map.

Reads cost no system call. Each number is eight aligned bytes, so a reader never sees half of one, and each order of the
writes is a valid state, so a process may be killed between two of them.
"""

import os
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dragoman.backends.http.circuit_breaker import BreakerState
from dragoman.shared_files import FileLock, map_file, write_mapped

_TRIAL_LIMIT_S: Final = 60.0
"""A trial that runs longer counts as ended, should its process be gone and its number be in use again."""
_INT, _FLOAT = struct.Struct("q"), struct.Struct("d")  # native formats are copied at once, not byte by byte
_FAILURES, _OPEN_UNTIL, _TRIAL_UNTIL, _TRIAL_PID, _SIZE = range(0, 40, 8)


class SharedBreakerState(BreakerState):
    """What all processes know of one server. Times are of the monotonic clock, which the whole machine shares."""

    trial_limit_s = _TRIAL_LIMIT_S

    def __init__(self, path: Path) -> None:
        self._file, self._lock = map_file(path, _SIZE), FileLock(path)

    def lock(self) -> AbstractContextManager[None]:
        """Excludes other processes from changes."""
        return self._lock.wait()

    def begin_trial(self, now_s: float) -> float:
        """Begins a trial; it ends with `end_trial`, with this process, or after a minute."""
        write_mapped(self._file, _TRIAL_PID, _INT.pack(os.getpid()))
        return super().begin_trial(now_s)

    def is_trying(self, now_s: float) -> bool:
        """Whether the process of a trial still runs."""
        return super().is_trying(now_s) and _is_alive(_INT.unpack_from(self._file, _TRIAL_PID)[0])

    @property
    def failures(self) -> int:
        """Failures in a row."""
        failures: int = _INT.unpack_from(self._file, _FAILURES)[0]
        return failures

    @failures.setter
    def failures(self, value: int) -> None:
        write_mapped(self._file, _FAILURES, _INT.pack(value))

    @property
    def open_until_s(self) -> float:
        """The end of the cool-down."""
        return self._time(_OPEN_UNTIL)

    @open_until_s.setter
    def open_until_s(self, value: float) -> None:
        write_mapped(self._file, _OPEN_UNTIL, _FLOAT.pack(value))

    @property
    def trial_until_s(self) -> float:
        """The latest end of the running trial; 0: there is none."""
        return self._time(_TRIAL_UNTIL)

    @trial_until_s.setter
    def trial_until_s(self, value: float) -> None:
        write_mapped(self._file, _TRIAL_UNTIL, _FLOAT.pack(value))

    def _time(self, offset: int) -> float:
        seconds: float = _FLOAT.unpack_from(self._file, offset)[0]
        return seconds


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
