"""Whether a file of weights is still what was fetched: its sha256, and a note beside it that saves reading it again.

    NAME.gguf        the weights
    NAME.gguf.json   {"size_bytes": …, "mtime_ns": …, "sha256": …} of the last time that their sha256 was computed

While size and time are those of the note, the file has that sha256; else it is read, which takes a second per gigabyte
or so. The note is against accidents: who can write the file can write its time too, so `thorough` reads it anyway.
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
    """What a file should be, and what it is."""

    expected: str
    got: str


class _Note(msgspec.Struct, frozen=True):
    size_bytes: int
    mtime_ns: int
    sha256: str


def digest(files: Sequence[Path], write: Callable[[bytes], object], step: Callable[[int], None]) -> tuple[str, int]:
    """The sha256 and size of files one after another, each chunk handed to `write`."""
    found, done = hashlib.sha256(), 0
    for file in files:
        with file.open("rb") as source:
            while chunk := source.read(_CHUNK_BYTES):
                found.update(chunk)
                write(chunk)
                done += len(chunk)
                step(done)
    return found.hexdigest(), done


def keep(file: Path, sha256: str) -> None:
    """Note the sha256 of a file as it is now; where that cannot be kept, the file is read again next time."""
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
    """How a file differs from this sha256 and size, or from its note where none is given; None: it does not.

    A file of which nothing is known differs from nothing.

    Raises: OSError: it cannot be read.
    """
    now, note = file.stat(), _note(file)
    if size_bytes and now.st_size != size_bytes:
        return Mismatch(f"{size_bytes} bytes", f"{now.st_size}")
    wanted = sha256 or (note.sha256 if note else "")
    if not wanted:
        return None
    noted = note is not None and (note.size_bytes, note.mtime_ns) == (now.st_size, now.st_mtime_ns)
    if note is not None and noted and not thorough:
        got = note.sha256
    else:
        got, _ = digest([file], len, step)
        if sha256 or got == wanted:  # without a list's word the note is all that tells what was fetched
            with suppress(OSError):
                _keep(file, now, got)
    return None if got == wanted else Mismatch(f"sha256 {wanted}", got)


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _note(file: Path) -> _Note | None:
    try:
        return msgspec.json.decode(_beside(file).read_bytes(), type=_Note)
    except (OSError, msgspec.DecodeError):
        return None


def _keep(file: Path, at: os.stat_result, sha256: str) -> None:
    note = _Note(at.st_size, at.st_mtime_ns, sha256)
    half = file.with_name(f"{file.name}.json.{os.getpid()}.part")
    half.write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")
    os.replace(half, _beside(file))
