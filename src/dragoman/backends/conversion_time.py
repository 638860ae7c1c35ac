"""How long one exchange has spent on conversion: reading and writing the JSON of both APIs, without any waiting.

spent = timing.begin()          in the task that answers; tasks that it starts add to the same
with timing.counted(): …        anywhere below
"""

from contextvars import ContextVar
from time import perf_counter


class Spent:
    """A sum of times, which `with` adds to."""

    __slots__ = ("_began_s", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began_s = 0.0

    def __enter__(self) -> None:
        self._began_s = perf_counter()

    def __exit__(self, *raised: object) -> None:
        self.seconds += perf_counter() - self._began_s


_spent: ContextVar[Spent | None] = ContextVar("spent", default=None)


def begin() -> Spent:
    """A new sum for what this task does from here on."""
    _spent.set(spent := Spent())
    return spent


def counted() -> Spent:
    """What adds the time of a block, which does not wait, to the sum of this task; to none where there is none."""
    return _spent.get() or Spent()
