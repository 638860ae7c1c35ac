"""Counts the running requests of each key: in this process, or in all processes of a gateway."""

import struct
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path
from typing import Any, Final

_ROW: Final = struct.Struct("q")


class RunningRequests(ABC):
    """The running requests of each key."""

    @abstractmethod
    async def take(self, key: str, limit: int) -> bool:
        """Counts a request if fewer than `limit` run; returns whether that is so."""

    @abstractmethod
    def release(self, key: str) -> None:
        """Ends a counted request."""

    @abstractmethod
    async def count(self, key: str) -> int:
        """Returns the number of running requests."""

    async def close(self) -> None:  # noqa: B027 nothing need be closed
        """Closes connections and files."""


class LocalRequests(RunningRequests):
    """The running requests of one process."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    async def take(self, key: str, limit: int) -> bool:
        """Counts a request if fewer than `limit` run; returns whether that is so."""
        if self._running[key] >= limit:
            return False
        self._running[key] += 1
        return True

    def release(self, key: str) -> None:
        """Ends a counted request."""
        self._running[key] -= 1

    async def count(self, key: str) -> int:
        """Returns the number of running requests."""
        return self._running[key]


class MappedRequests(RunningRequests):
    """The running requests of all processes of a gateway.

    Each process counts its requests in a row of its own, which counts no longer once the process has ended.
    """

    def __init__(self, folder: Path) -> None:
        """Args:
            folder: A private folder of the gateway; created if missing.

        Raises:
            ConfigError: There are too many processes.
        """
        from dragoman import shared_files

        self._shared = shared_files
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder, self._seats = folder, folder / "seats"
        self._seat, self._seat_lock = shared_files.claim_seat_lock(self._seats)
        self._rows = struct.Struct(f"{shared_files.MAX_PROCESSES}q")
        self._lock = shared_files.FileLock(folder / "lock")
        self._files: dict[str, Any] = {}
        self._own: Counter[str] = Counter()

    async def take(self, key: str, limit: int) -> bool:
        """Counts a request if fewer than `limit` run; returns whether that is so."""
        file = self._file(key)
        with self._lock.wait():
            if self._own[key] + self._elsewhere(file) >= limit:
                return False
            self._set(file, key, 1)
        return True

    def release(self, key: str) -> None:
        """Ends a counted request."""
        self._set(self._file(key), key, -1)

    async def count(self, key: str) -> int:
        """Returns the number of running requests."""
        return self._own[key] + self._elsewhere(self._file(key))

    async def close(self) -> None:
        """Ends this process' part of the counts."""
        self._seat_lock.close()

    def _set(self, file: Any, key: str, change: int) -> None:
        self._own[key] += change
        self._shared.write_mapped(file, self._seat * _ROW.size, _ROW.pack(self._own[key]))

    def _elsewhere(self, file: Any) -> int:
        counts = self._rows.unpack_from(file)
        if not any(counts):
            return 0
        others = ((seat, number) for seat, number in enumerate(counts) if number and seat != self._seat)
        return sum(number for seat, number in others if self._shared.is_locked(self._seats / str(seat)))

    def _file(self, key: str) -> Any:
        file = self._files.get(key)
        if file is None:
            path = self._folder / self._shared.file_name(key)
            file = self._files[key] = self._shared.map_file(path, self._rows.size)
            # An ended process may have left a number in this process' row.
            self._shared.write_mapped(file, self._seat * _ROW.size, _ROW.pack(0))
        return file
