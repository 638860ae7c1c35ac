"""Time that one exchange spends on conversion: reading and writing the JSON of both APIs, in threads too.

spent = conversion_time.start()         in the task that serves the request; tasks that it starts add to the same
with conversion_time.measure(): …       anywhere below
"""

from contextvars import ContextVar
from time import perf_counter


class ConversionTimer:
    """Total time of all blocks run `with` this timer, in seconds."""

    __slots__ = ("_began_s", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._began_s = perf_counter()

    def __exit__(self, *raised: object) -> None:
        self.seconds += perf_counter() - self._began_s


_spent: ContextVar[ConversionTimer | None] = ContextVar("spent", default=None)


def start() -> ConversionTimer:
    """Starts a new timer for the current task and returns it."""
    _spent.set(spent := ConversionTimer())
    return spent


def measure() -> ConversionTimer:
    """Returns the timer of the current task, a context manager; a new timer if the task has none.

    The block may wait for a thread or a process that converts, but not for a client or server.
    """
    return _spent.get() or ConversionTimer()
