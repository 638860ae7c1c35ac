"""Downloads weights from the Hugging Face Hub, or links them from the Hub's own cache if they are there.

`huggingface_hub` finds the file, so `HF_TOKEN`, `HF_ENDPOINT`, `HF_HOME` and `HF_HUB_OFFLINE` apply. Its own download
starts again at the beginning if the process was ended (version 2), so the bytes are read here, with ranges:

    .parts/NAME/hub-ETAG    what has arrived so far; the next download continues at its end

It retries for minutes if the Hub cannot be reached, so the Hub is first asked once, with a short timeout.

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache (2026-11).
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from dragoman import extras
from dragoman.backends.embedded.weights import checksums
from dragoman.backends.embedded.weights.job import (
    ChecksumError,
    DownloadJob,
    SourceUnavailableError,
    flush_to_disk,
    move_into_place,
    require_space,
    verify,
)
from dragoman.catalog.models import HubSource
from dragoman.core.errors import UpstreamError

REACH_TIMEOUT_S: Final = 5.0
"""Time for the first request; after it, the Hub counts as not reachable."""
_READ_TIMEOUT_S: Final = 60.0
"""Time for the next bytes."""
_MAX_FAILURES: Final = 5
"""Requests in a row that bring no bytes, after which a download fails."""
_RETRY_WAIT_S: Final = 1.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Fetched(NamedTuple):
    """A file of the Hub on this machine."""

    path: Path
    stated: str
    """The sha256 that the Hub states for it; "": unknown."""
    is_cached: bool
    """Whether it is in the Hub's cache, which other programs use too."""


class _RemoteFile(NamedTuple):
    """A file of the Hub, as its response to a HEAD request describes it."""

    url: str
    where: str
    etag: str
    size_bytes: int
    """0: unknown."""


def download_from_hub(job: DownloadJob, source: HubSource) -> None:
    """Downloads the file unless the Hub's cache has it, checks it, and moves or links it to its final path.

    Raises:
        UpstreamError: the Hub cannot be reached, or failed.
        SourceUnavailableError: the Hub does not have the file, or `huggingface_hub` is not installed.
        ChecksumError: the file is not the expected one.
        ConfigError: the disk is full.
    """
    fetched = _fetch(job, source)
    blob = fetched.path.resolve()
    job.report(0, "checking")
    digest, size = checksums.digest([blob], len, lambda done: job.report(done, "checking"))
    try:
        verify(job, job.sha256 or fetched.stated, digest, size)
    except ChecksumError:
        # In the cache, only a damaged file is deleted, not another version than that of the catalogue.
        if not fetched.is_cached or digest != fetched.stated:
            fetched.path.unlink()
            blob.unlink(missing_ok=True)
        raise
    job.partial_file.unlink(missing_ok=True)
    if fetched.is_cached:
        _link(blob, job.partial_file)
    else:
        os.replace(blob, job.partial_file)
    move_into_place(job)
    checksums.keep(job.file, digest)
    job.partial_file.unlink(missing_ok=True)  # a rename onto another link of the same file does nothing


def _link(blob: Path, target: Path) -> None:
    try:
        os.link(blob, target)
    except OSError:  # another disk, or one without links
        shutil.copyfile(blob, target)


def _fetch(job: DownloadJob, source: HubSource) -> _Fetched:
    """Returns the file, from the Hub's cache or downloaded."""
    require_library(job.name)
    import huggingface_hub as hub
    from huggingface_hub import constants

    where = f"{source.repo}/{source.file} at {source.revision}"
    job.report(0, "downloading")
    blobs = Path(constants.HF_HUB_CACHE) / f"models--{source.repo.replace('/', '--')}" / "blobs"
    is_replaced = job.force or job.file.is_file()  # a file that has changed may share its bytes with the Hub's cache
    if not is_replaced and job.sha256 and (blobs / job.sha256).is_file():
        return _Fetched(blobs / job.sha256, job.sha256, is_cached=True)
    try:
        with translated_errors(where):
            url = hub.hf_hub_url(source.repo, source.file, revision=source.revision)
            found = hub.get_hf_file_metadata(url, timeout=REACH_TIMEOUT_S)
    except UpstreamError:
        cached = None if is_replaced else hub.try_to_load_from_cache(source.repo, source.file, revision=source.revision)
        if not isinstance(cached, str):
            raise
        # The cache names a large file by its sha256.
        return _Fetched(Path(cached), _as_sha256(Path(cached).resolve().name), is_cached=True)
    remote = _RemoteFile(url, where, found.etag or "", found.size or 0)
    if not is_replaced and remote.etag and (blobs / Path(remote.etag).name).is_file():
        return _Fetched(blobs / Path(remote.etag).name, _as_sha256(remote.etag), is_cached=True)
    return _Fetched(_download(job, remote), _as_sha256(remote.etag), is_cached=False)


def _as_sha256(etag: str) -> str:
    return etag if _SHA256.fullmatch(etag) else ""


def _download(job: DownloadJob, remote: _RemoteFile) -> Path:
    """Downloads what has not arrived yet, and returns the path of the file."""
    job = replace(job, size_bytes=job.size_bytes or remote.size_bytes)
    part = job.parts_dir / f"hub-{hashlib.sha256(remote.etag.encode()).hexdigest()[:16]}"
    if not (remote.etag and remote.size_bytes):  # what has arrived may be of another version
        part.unlink(missing_ok=True)
    part.touch()
    require_space(job, job.parts_dir, max(0, remote.size_bytes - part.stat().st_size))
    failures = 0
    while not remote.size_bytes or part.stat().st_size < remote.size_bytes:
        before = part.stat().st_size
        try:
            _append_rest(job, remote, part)
            break
        except UpstreamError:
            failures = 0 if part.stat().st_size > before else failures + 1
            if failures == _MAX_FAILURES or not remote.size_bytes:
                raise
        if failures:
            time.sleep(_RETRY_WAIT_S)
    return part


def _append_rest(job: DownloadJob, remote: _RemoteFile, part: Path) -> None:
    """Sends one request for the bytes after those in the file, and appends them.

    Raises: UpstreamError: the request failed, or the connection ended too early.
    """
    with part.open("ab", buffering=0) as file, closing(_read_rest(remote, part.stat().st_size)) as chunks:
        try:
            for start, chunk in chunks:
                file.truncate(start)
                file.write(chunk)
                job.report(start + len(chunk), "downloading")
        finally:
            flush_to_disk(file)


def _read_rest(remote: _RemoteFile, done: int) -> Generator[tuple[int, bytes], None, None]:
    """Yields the bytes after the first ones, with their positions; from the beginning if the server ignores ranges."""
    import huggingface_hub as hub
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    headers = build_hf_headers() | {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with (
        translated_errors(remote.where),
        hub.get_session().stream(
            "GET", remote.url, headers=headers, timeout=_READ_TIMEOUT_S, follow_redirects=True
        ) as response,
    ):
        hf_raise_for_status(response)
        position = done if response.status_code == 206 else 0
        for chunk in response.iter_bytes():
            yield position, chunk
            position += len(chunk)


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


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
