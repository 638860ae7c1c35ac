"""Downloads weights from the Hugging Face Hub into the Hub's own cache, and links them from there.

`huggingface_hub` does the work, so `HF_TOKEN`, `HF_ENDPOINT`, `HF_HOME` and `HF_HUB_OFFLINE` apply, and so does what
other programs have downloaded. It continues after a connection that is cut. It retries for minutes if the Hub cannot be
reached, so the Hub is first asked once, with a short timeout.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dragoman import extras
from dragoman.backends.embedded.weights import checksums
from dragoman.backends.embedded.weights.job import (
    ChecksumError,
    DownloadJob,
    SourceUnavailableError,
    move_into_place,
    report_growth,
    require_space,
    verify,
)
from dragoman.catalog.models import HubSource
from dragoman.core.errors import UpstreamError

REACH_TIMEOUT_S: Final = 5.0
"""Time for the first request; after it, the Hub counts as not reachable."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def download_from_hub(job: DownloadJob, source: HubSource) -> None:
    """Downloads the file unless the Hub's cache has it, checks it, and links it to its final path.

    Raises:
        UpstreamError: the Hub cannot be reached, or failed.
        SourceUnavailableError: the Hub does not have the file, or `huggingface_hub` is not installed.
        ChecksumError: the file is not the expected one.
        ConfigError: the disk is full.
    """
    path = _fetch(job, source)
    blob = path.resolve()
    job.report(0, "checking")
    digest, size = checksums.digest([blob], len, lambda done: job.report(done, "checking"))
    # The Hub's cache names a large file by its sha256: its documentation, "Understand caching".
    stated = blob.name if _SHA256.fullmatch(blob.name) else ""
    try:
        verify(job, job.sha256 or stated, digest, size)
    except ChecksumError:
        if digest != stated:  # damaged, and not only another version than that of the catalogue
            path.unlink()
            blob.unlink(missing_ok=True)
        raise
    job.partial_file.unlink(missing_ok=True)
    try:
        os.link(blob, job.partial_file)
    except OSError:  # another disk, or one without links
        shutil.copyfile(blob, job.partial_file)
    move_into_place(job)
    checksums.keep(job.file, digest)
    job.partial_file.unlink(missing_ok=True)  # a rename onto another link of the same file does nothing


def _fetch(job: DownloadJob, source: HubSource) -> Path:
    """Returns the file in the Hub's cache, downloaded if necessary."""
    require_library(job.name)
    import huggingface_hub as hub
    from huggingface_hub import constants

    where = f"{source.repo}/{source.file} at {source.revision}"
    job.report(0, "downloading")
    cache = Path(constants.HF_HUB_CACHE)
    blobs = cache / f"models--{source.repo.replace('/', '--')}" / "blobs"
    replace = job.force or job.file.is_file()  # a file that has changed may share its bytes with the Hub's cache
    if not replace and job.sha256 and (blobs / job.sha256).is_file():
        return blobs / job.sha256
    try:
        with translated_errors(where):
            url = hub.hf_hub_url(source.repo, source.file, revision=source.revision)
            hub.get_hf_file_metadata(url, timeout=REACH_TIMEOUT_S)
    except UpstreamError:
        cached = None if replace else hub.try_to_load_from_cache(source.repo, source.file, revision=source.revision)
        if not isinstance(cached, str):
            raise
        return Path(cached)
    require_space(job, cache, job.size_bytes)
    with translated_errors(where), _no_progress_bars(), report_growth(str(blobs), ".incomplete", _reporter(job)):
        return Path(hub.hf_hub_download(source.repo, source.file, revision=source.revision, force_download=replace))


def _reporter(job: DownloadJob) -> Callable[[int], None]:
    return lambda size_bytes: job.report(size_bytes, "downloading")


def require_library(name: str) -> None:
    """Checks that huggingface_hub is installed.

    Args:
        name: the model, for the error.

    Raises:
        SourceUnavailableError: it is not; the message has the command that installs it.
    """
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        command = extras.install_command("embedded")
        raise SourceUnavailableError(f"pulling {name} needs huggingface-hub; run: {command}") from error


@contextmanager
def translated_errors(where: str) -> Iterator[None]:
    """Turns the errors of huggingface_hub into ours.

    Args:
        where: the file or repository, for the errors.
    """
    from huggingface_hub import errors

    # Its bases are OSError and the error of the HTTP library that this version of huggingface_hub uses.
    failures = tuple(kind for kind in errors.HfHubHTTPError.__bases__ if issubclass(kind, Exception))
    try:
        yield
    except errors.LocalEntryNotFoundError as error:
        raise UpstreamError(f"the Hugging Face Hub could not be asked for {where}: {_first_line(error)}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise SourceUnavailableError(f"the Hugging Face Hub does not have {where}: {_first_line(error)}") from error
    except errors.HfHubHTTPError as error:
        raise UpstreamError(f"the Hugging Face Hub failed for {where}: {_first_line(error)}") from error
    except failures as error:
        raise UpstreamError(f"the Hugging Face Hub could not be reached for {where}: {_first_line(error)}") from error


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
