"""One download: where its files are, its progress, and the steps that all sources share."""

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

from dragoman.catalog.models import Source
from dragoman.core.errors import ConfigError, RemoteError

Progress: TypeAlias = Callable[[int, int, str], None]
"""Receives the bytes that are done, the bytes in all (0: unknown) and the name of the step; never from two threads at
once."""

SPLIT_FILE: Final = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})$")
"""End of the name of one of several parts, without `.gguf`."""
_POLL_EVERY_S = 0.2
"""How often the size of a file that another program writes is read, for the progress only."""


class ChecksumError(RemoteError):
    """The downloaded file is not the expected one; it was deleted."""

    def __init__(self, name: str, expected: str, actual: str) -> None:
        super().__init__(f"weights of {name}: expected {expected}, got {actual}; nothing of it was kept, pull again")
        self.expected = expected
        self.actual = actual


class SourceUnavailableError(ConfigError):
    """A source does not have the file, or cannot be used on this machine; a mirror may have it."""


def no_progress(done: int, total: int, what: str) -> None:
    """Discards the progress."""


@dataclass(frozen=True, slots=True)
class DownloadJob:
    """The weights of one model."""

    name: str
    """The name that the user gave."""
    file: Path
    """The final path."""
    sources: tuple[Source, ...]
    """In the order in which they are tried."""
    size_bytes: int = 0
    """0: unknown."""
    sha256: str = ""
    """Empty: unknown, the checksum that the Hub states is used."""
    progress: Progress = no_progress
    force: bool = False
    """Whether to download a file that is there already."""
    label: str = ""
    """Which file of several it is, for the progress."""

    @property
    def partial_file(self) -> Path:
        """The file while it is joined and checked."""
        return self.file.with_name(f"{self.file.name}.part")

    @property
    def parts_dir(self) -> Path:
        """The folder of the parts that are complete."""
        return self.file.parent / ".parts" / self.file.stem

    def report(self, done_bytes: int, step: str) -> None:
        """Reports the progress of a step."""
        done = min(done_bytes, self.size_bytes) if self.size_bytes else done_bytes
        self.progress(done, self.size_bytes, f"{step} {self.label}".rstrip())


def projector_path(file: Path) -> Path:
    """Returns where the projector of downloaded weights is, if they have one.

    Args:
        file: the weights; of several parts, any of them.
    """
    return file.with_name(f"{SPLIT_FILE.sub('', file.stem)}.mmproj.gguf")


def format_size(size_bytes: int) -> str:
    """Returns a size for people: `98.4 MB`, `1.12 GB`."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def require_space(job: DownloadJob, folder: Path, needed_bytes: int) -> None:
    """Checks the free space before a download.

    Raises:
        ConfigError: the disk of `folder` has less than `needed_bytes`.
    """
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise ConfigError(
            f"pulling {job.name} needs {format_size(needed_bytes)} of room in {existing}, there are "
            f"{format_size(free)}; make room, or set DRAGOMAN_HOME to a folder that has it"
        )


def verify(job: DownloadJob, sha256: str, actual_sha256: str, size_bytes: int) -> None:
    """Compares a downloaded file with what was expected.

    Args:
        job: the download, with the expected size.
        sha256: the expected checksum; empty if it is unknown.
        actual_sha256: the checksum of the file.
        size_bytes: the size of the file.

    Raises:
        ChecksumError: the file is not the expected one.
    """
    if job.size_bytes and size_bytes != job.size_bytes:
        raise ChecksumError(job.name, f"{job.size_bytes} bytes", f"{size_bytes}")
    if sha256 and actual_sha256 != sha256:
        raise ChecksumError(job.name, f"sha256 {sha256}", actual_sha256)


def move_into_place(job: DownloadJob) -> None:
    """Renames the checked file to its final name, so that it survives a power cut."""
    os.replace(job.partial_file, job.file)
    if sys.platform != "win32":
        folder = os.open(job.file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def flush_to_disk(file: IO[bytes]) -> None:
    """Writes everything to the disk."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def report_growth(folder: str, suffix: str, report: Callable[[int], None]) -> Iterator[None]:
    """Reports, every fifth of a second, the size of the largest file that another program writes in a folder.

    Args:
        folder: the folder; it may not exist yet.
        suffix: the end of the file's name.
        report: receives the size in bytes, from a thread.
    """
    done_event = threading.Event()

    def poll() -> None:
        while not done_event.wait(_POLL_EVERY_S):
            sizes = [0]
            for place, _, names in os.walk(folder):
                for name in names:
                    with suppress(OSError):  # deleted meanwhile
                        sizes.append(os.stat(os.path.join(place, name)).st_size if name.endswith(suffix) else 0)
            report(max(sizes))

    thread = threading.Thread(target=poll, name="dragoman-pull", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done_event.set()
        thread.join()
