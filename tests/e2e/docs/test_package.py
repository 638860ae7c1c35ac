"""The wheel and the source archive: their contents, and that the archive builds the same wheel byte for byte.

hatchling builds them from this source tree without a network, as called by pip and `build`.
"""

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import dragoman
from support.paths import ROOT

NAME = f"dragoman-{dragoman.__version__}"
LARGEST_BYTES = {"wheel": 2_100_000, "sdist": 3_750_000}


def build(kind: str, of: Path, to: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(to)],
        cwd=of,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (built,) = to.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def test_wheel_contains_only_the_package(wheel: Path) -> None:
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert wheel.stat().st_size < LARGEST_BYTES["wheel"]
    source = ROOT / "src"
    ours = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    ours = {path for path in ours if "__pycache__" not in path}
    about = {f"{NAME}.dist-info/{file}" for file in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) == ours | about | {f"{NAME}.dist-info/licenses/LICENSE"}
        assert archive.read(f"{NAME}.dist-info/entry_points.txt").decode().split() == [
            "[console_scripts]",
            "dragoman",
            "=",
            "dragoman.cli:main",
        ]
    assert "dragoman/py.typed" in ours


def test_package_metadata_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        told = email.message_from_string(archive.read(f"{NAME}.dist-info/METADATA").decode())
    assert told["Version"] == dragoman.__version__
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload() == (ROOT / "README.md").read_text()
    base = [wanted for wanted in told.get_all("Requires-Dist", []) if "extra ==" not in wanted]
    assert [wanted.partition("<")[0] for wanted in base] == ["msgspec"]


def test_sdist_contains_all_tracked_files(sdist: Path) -> None:
    """The archive suffices to run the tests, build the documentation and change the code."""
    assert sdist.name == f"{NAME}.tar.gz"
    assert sdist.stat().st_size < LARGEST_BYTES["sdist"]
    with tarfile.open(sdist) as archive:
        inside = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    if (ROOT / ".git").exists():
        kept = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )
        assert {name for name in kept if (ROOT / name).is_file()} - inside <= {".ci/run"}
    assert not {Path(name).parts[0] for name in inside} & {".cache", ".git", ".venv", "dist", "site"}


def test_sdist_builds_identical_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build("wheel", tmp_path / NAME, tmp_path / "wheel")
    assert again.read_bytes() == wheel.read_bytes()


def test_sdist_build_is_reproducible(sdist: Path, tmp_path: Path) -> None:
    assert build("sdist", ROOT, tmp_path).read_bytes() == sdist.read_bytes()
