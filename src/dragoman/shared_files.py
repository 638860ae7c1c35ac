"""Files through which the processes of one gateway share state: locks and mapped numbers.

The kernel releases a lock when its process ends, for whatever reason, so a killed process does not block the others.
Only gateways with several processes import this module: it needs `fcntl`, which Windows does not have.
"""

import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dragoman.core.errors import ConfigError

MAX_PROCESSES: Final = 256
_seats: Final[list["FileLock"]] = []
"""The locks of the numbers of this process, which it holds to its end."""


class FileLock:
    """A lock that one process holds at a time; not for threads of one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.is_held = False

    def __del__(self) -> None:
        self.close()

    def try_acquire(self) -> bool:
        """Acquires the lock, and returns whether that succeeded; does not wait."""
        if self.is_held:
            return False
        try:
            fcntl.flock(self._open(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_held = True
        return True

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Holds the lock in the block, which must take microseconds: the event loop waits for other processes."""
        fcntl.flock(self._open(), fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def release(self) -> None:
        """Releases the lock; the file stays open."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self.is_held = False

    def close(self) -> None:
        """Releases the lock and closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self.is_held = -1, False

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = _open(self._path)
        return self._fd


def is_locked(path: Path) -> bool:
    """Returns whether a process holds the `FileLock` of this file."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def map_file(path: Path, size_bytes: int) -> mmap.mmap:
    """Returns the file as memory that processes share; it is created if missing, and grown with zeros if shorter.

    Raises:
        OSError: The disk is full.
    """
    fd = _open(path)
    try:
        if os.fstat(fd).st_size < size_bytes:
            _grow(fd, size_bytes)
        return mmap.mmap(fd, size_bytes)
    finally:
        os.close(fd)


def write_mapped(file: mmap.mmap, offset: int, number: bytes) -> None:
    """Writes a packed number, so that other processes read either the old or the new one.

    `struct.Struct.pack_into` clears the bytes first, so they can read 0 meanwhile.
    """
    file[offset : offset + len(number)] = number


def _grow(fd: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):  # a write to a mapped page for which the disk has no space kills the process
        os.posix_fallocate(fd, 0, size_bytes)
    else:
        os.ftruncate(fd, size_bytes)


def claim_seat(folder: Path) -> int:
    """Returns a number below `MAX_PROCESSES` that belongs to this process until it ends.

    Raises:
        ConfigError: All numbers are taken.
    """
    seat, lock = claim_seat_lock(folder)
    _seats.append(lock)
    return seat


def claim_seat_lock(folder: Path) -> tuple[int, FileLock]:
    """Returns a number as `claim_seat`, and its lock: the number belongs to the holder until the lock is closed.

    Raises:
        ConfigError: All numbers are taken.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    for seat in range(MAX_PROCESSES):
        lock = FileLock(folder / str(seat))
        if lock.try_acquire():
            return seat, lock
        lock.close()
    raise ConfigError(f"expected at most {MAX_PROCESSES} processes of one gateway, got more")


def file_name(name: str) -> str:
    """Returns a name for a file that belongs to this name, which may contain any characters."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:24]


def _open(path: Path) -> int:
    """Opens a file for this user only; child processes do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
