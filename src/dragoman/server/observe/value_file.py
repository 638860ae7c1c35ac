"""A file of numbers by key, which one process writes and others read while it does.

File: magic and used bytes, then records: length of the key, number of values, values, key, padded to 8 bytes. A record
exists once `used` includes it. Each number is 8 aligned bytes, so it is never read half written, and what is written
remains if the process is killed at any time.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dragoman.shared_files import map_file, write_mapped

Key: TypeAlias = tuple[str, ...]

_MAGIC: Final = int.from_bytes(b"DRAGMET1", "little")
# Native formats are copied at once, those with a byte order byte by byte.
_HEAD, _RECORD, _VALUE, _USED = struct.Struct("QQ"), struct.Struct("II"), struct.Struct("d"), struct.Struct("Q")
_USED_AT: Final = 8
_FIRST_BYTES: Final = 64 * 1024


class Row(NamedTuple):
    """A record, with a copy of its values."""

    key: Key
    values: tuple[float, ...]
    offset: int
    """Position of the values in the file."""


class ValueFile:
    """The file of the process that writes it; an existing one is continued."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map = map_file(path, max(path.stat().st_size if path.exists() else 0, _FIRST_BYTES))
        if _HEAD.unpack_from(self._map)[0] != _MAGIC:
            write_mapped(self._map, 0, _HEAD.pack(_MAGIC, _HEAD.size))

    def rows(self) -> Iterator[Row]:
        """Yields the records."""
        return _rows(self._map)

    def append(self, key: Key, count: int) -> int:
        """Adds a record of this many zeros and returns the offset of its values.

        Raises:
            OSError: The disk is full.
        """
        written = msgspec.msgpack.encode(key)
        at: int = _HEAD.unpack_from(self._map)[1]
        offset = at + _RECORD.size
        end = offset + count * _VALUE.size
        used = -(-(end + len(written)) // 8) * 8
        if used > len(self._map):
            self._map = map_file(self._path, max(len(self._map) * 2, used))
        self._map[offset:end] = bytes(end - offset)
        self._map[end : end + len(written)] = written
        write_mapped(self._map, at, _RECORD.pack(len(written), count))
        write_mapped(self._map, _USED_AT, _USED.pack(used))
        return offset

    def get(self, offset: int) -> float:
        """Returns the value at this offset."""
        value: float = _VALUE.unpack_from(self._map, offset)[0]
        return value

    def set(self, offset: int, value: float) -> None:
        """Sets the value at this offset."""
        write_mapped(self._map, offset, _VALUE.pack(value))

    def add(self, offset: int, amount: float) -> None:
        """Adds to the value at this offset."""
        write_mapped(self._map, offset, _VALUE.pack(_VALUE.unpack_from(self._map, offset)[0] + amount))


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the records of another process's file."""
    with open(path, "rb") as file:
        while path.stat().st_size >= _HEAD.size:
            values = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if _HEAD.unpack_from(values)[1] <= len(values):  # else it has just grown
                yield from _rows(values)
                return


def _rows(values: mmap.mmap) -> Iterator[Row]:
    at, used = _HEAD.size, _HEAD.unpack_from(values)[1]
    while at < used:
        key_bytes, count = _RECORD.unpack_from(values, at)
        offset = at + _RECORD.size
        end = offset + count * _VALUE.size
        key = msgspec.msgpack.decode(values[end : end + key_bytes], type=Key)
        yield Row(key, struct.unpack_from(f"{count}d", values, offset), offset)
        at = -(-(end + key_bytes) // 8) * 8
