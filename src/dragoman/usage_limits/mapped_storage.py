"""A storage of the package `limits` in files that the processes of a gateway map into memory.

Each window is a file with three numbers, which a process reads and changes while it holds a lock.
"""

import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from limits.aio.storage import SlidingWindowCounterSupport, Storage

from dragoman import shared_files

_NUMBERS: Final = struct.Struct("qqq")
"""The number of the current window since 1970, its count, and that of the window before."""
_MAX_COUNT: Final = 1 << 60


class MappedStorage(Storage, SlidingWindowCounterSupport):
    """Sliding windows that several processes of one machine share."""

    STORAGE_SCHEME: list[str] | None = None

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Args:
        folder: A private folder of the gateway; created if missing.
        clock: Returns the seconds since 1970.
        """
        super().__init__()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder, self._clock = folder, clock
        self._lock = shared_files.FileLock(folder / "lock")
        self._files: dict[str, Any] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """Errors of the storage."""
        return OSError

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds the amount if the limit allows it; returns whether it does.

        Args:
            key: The name of the window.
            limit: The maximum.
            expiry: The length of the window, in seconds.
            amount: What is added; it may be negative.
        """
        file = self._file(key)
        with self._lock.wait():
            number, previous, previous_ttl_s, current, _ = self._read(file, expiry)
            if int(previous * previous_ttl_s / expiry) + current + amount > limit:
                return False
            shared_files.write_mapped(file, 0, _NUMBERS.pack(number, min(current + amount, _MAX_COUNT), previous))
        return True

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Returns counter and time to live of the previous window, then of the current one."""
        file = self._file(key)
        with self._lock.wait():
            return self._read(file, expiry)[1:]

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Empties a window."""
        await self.clear(key)

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Adds to a window; returns its count."""
        await self.acquire_sliding_window_entry(key, 1 << 62, expiry, amount)
        return (await self.get_sliding_window(key, expiry))[2]

    async def get(self, key: str) -> int:
        """Returns the count of a window that was used last."""
        count: int = _NUMBERS.unpack_from(self._file(key))[1]
        return count

    async def get_expiry(self, key: str) -> float:
        """Returns the current time: windows do not expire."""
        return self._clock()

    async def check(self) -> bool:
        """Returns whether the storage can be used."""
        return self._folder.is_dir()

    async def reset(self) -> int | None:
        """Empties all windows that this process has used."""
        for key in self._files:
            await self.clear(key)
        return len(self._files)

    async def clear(self, key: str) -> None:
        """Empties a window."""
        file = self._file(key)
        with self._lock.wait():
            shared_files.write_mapped(file, 0, _NUMBERS.pack(0, 0, 0))

    def _file(self, key: str) -> Any:
        file = self._files.get(key)
        if file is None:
            path = self._folder / shared_files.file_name(key)
            file = self._files[key] = shared_files.map_file(path, _NUMBERS.size)
        return file

    def _read(self, file: Any, expiry: int) -> tuple[int, int, float, int, float]:
        """Returns the number of the current window, then as `get_sliding_window`."""
        now_s = self._clock()
        number, current, previous = _NUMBERS.unpack_from(file)
        current_number = int(now_s // expiry)
        if number == current_number - 1:
            previous, current = current, 0
        elif number != current_number:
            previous, current = 0, 0
        left_s = expiry - now_s % expiry
        return current_number, previous, left_s if previous else 0.0, current, left_s + expiry
