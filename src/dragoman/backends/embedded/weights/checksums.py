"""Checks whether a file of weights is unchanged: its sha256, and a note next to it that avoids reading it again.

    NAME.gguf        the weights
    NAME.gguf.json   {"size_bytes": …, "mtime_ns": …, "sha256": …} when the sha256 was last computed

While size and time match the note, the file is assumed to have that sha256; otherwise it is read, which takes about a
second per gigabyte. The note protects against accidents only, as anyone who can write the file can set its time too;
`thorough` always reads the file.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

_CHUNK_BYTES = 1 << 20


class Mismatch(NamedTuple):
    """The expected and the actual state of a file."""

    expected: str
    actual: str


class _Note(msgspec.Struct, frozen=True):
    size_bytes: int
    mtime_ns: int
    sha256: str


def digest(files: Sequence[Path], write: Callable[[bytes], object], step: Callable[[int], None]) -> tuple[str, int]:
    """Returns the sha256 and the total size of the files; each chunk is passed to `write`."""
    hasher, done = hashlib.sha256(), 0
    for file in files:
        with file.open("rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                hasher.update(chunk)
                write(chunk)
                done += len(chunk)
                step(done)
    return hasher.hexdigest(), done


def keep(file: Path, sha256: str) -> None:
    """Writes the note for the file's present state; if that fails, the file is read again next time."""
    with suppress(OSError):
        _keep(file, file.stat(), sha256)


def mismatch(
    file: Path,
    sha256: str = "",
    size_bytes: int = 0,
    step: Callable[[int], None] = lambda done: None,
    *,
    thorough: bool = False,
) -> Mismatch | None:
    """Returns how a file differs from this sha256 and size, or from its note if none is given; None: it does not
    differ, or nothing is known of it.

    Args:
        file: The file.
        sha256: The expected digest; "": that of the note.
        size_bytes: The expected size; 0: not checked.
        step: Called with the number of bytes read so far.
        thorough: Whether the file is read even if it has not changed since its note was written.

    Raises:
        OSError: the file cannot be read.
    """
    now, note = file.stat(), _note(file)
    if size_bytes and now.st_size != size_bytes:
        return Mismatch(f"{size_bytes} bytes", f"{now.st_size}")
    expected = sha256 or (note.sha256 if note else "")
    if not expected:
        return None
    noted = note is not None and (note.size_bytes, note.mtime_ns) == (now.st_size, now.st_mtime_ns)
    if note is not None and noted and not thorough:
        actual = note.sha256
    else:
        actual, _ = digest([file], len, step)
        if sha256 or actual == expected:  # without a pinned sha256, the note is the only record of what was downloaded
            with suppress(OSError):
                _keep(file, now, actual)
    return None if actual == expected else Mismatch(f"sha256 {expected}", actual)


def _note_path(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _note(file: Path) -> _Note | None:
    try:
        return msgspec.json.decode(_note_path(file).read_bytes(), type=_Note)
    except (OSError, msgspec.DecodeError):
        return None


def _keep(file: Path, at: os.stat_result, sha256: str) -> None:
    note = _Note(at.st_size, at.st_mtime_ns, sha256)
    half = file.with_name(f"{file.name}.json.{os.getpid()}.part")
    half.write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")
    os.replace(half, _note_path(file))
