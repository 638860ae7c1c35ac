"""Connections that threads wait for in the order in which they ask."""

import threading
from collections import deque


class NoFreeConnectionError(Exception):
    """All connections were in use for the time limit."""


class FairPlaces:
    """Places that threads get in the order in which they ask.

    With the standard library's semaphores, a thread that has just released a place can take it before those that wait.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def take(self, timeout_s: float) -> bool:
        """Returns whether a place was free in time."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=timeout_s):
            return True
        with self._lock:
            try:
                self._waiting.remove(turn)
            except ValueError:  # it was its turn just now
                return True
            return False

    def release(self) -> None:
        """Passes a place to the thread that waits for the longest time."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
