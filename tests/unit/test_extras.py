"""Optional extras, and the command that installs them in an environment of pip, pipx or uv."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from dragoman import extras
from dragoman.backends.embedded.llama_worker.library import Library
from support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = {name: wanted for name, wanted in PROJECT["optional-dependencies"].items() if name != "all"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_extras_table_matches_pyproject() -> None:
    """uvloop and backports.zstd are not checked: not all platforms have them, and they are not required."""
    brought_by = packages_distributions()
    for name, wanted in OPTIONAL.items():
        packages = {normal(re.split(r"[<>=;\[ ]", each)[0]) for each in wanted} - {"uvloop", "backports-zstd"}
        found = {(brought_by.get(module) or [module])[0] for module in extras.PACKAGES[name]}
        assert set(map(normal, found)) == packages  # a module of a namespace package has the name of its distribution
    assert set(extras.PACKAGES) == set(OPTIONAL)
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(everything.removeprefix("dragoman[").removesuffix("]").split(",")) == set(OPTIONAL) - {"ray"}  # 240 MB


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates an environment with the extra `embedded` only."""
    monkeypatch.setattr(extras, "_is_installed", lambda module: module in extras.PACKAGES["embedded"])


@pytest.mark.usefixtures("without")
def test_missing_extras_are_listed() -> None:
    assert extras.missing_extras("server", "embedded", "templates", "terminal") == ["server", "terminal"]


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("file", "holds", "line", "for_pip"),
    [
        (
            ".venv/pyvenv.cfg",
            "",
            "pip install 'dragoman[server,terminal]'",
            "python -m ensurepip (or: uv pip install pip)",
        ),
        (
            "pipx/venvs/dragoman-next/pipx_metadata.json",
            '{"environment": "dragoman-next", "pipx_metadata_version": "0.12"}',
            "pipx inject dragoman-next 'dragoman[embedded,server,terminal]'",
            "pipx inject dragoman-next pip",
        ),
        (
            "pipx/venvs/dragoman/pipx_metadata.json",
            '{"pipx_metadata_version": "0.5"}',
            "pipx runpip dragoman install 'dragoman[server,terminal]'",
            "pipx inject dragoman pip",
        ),
        (
            ".cache/pipx/d95ab1e8/pipx_metadata.json",
            '{"environment": null}',
            "pip install 'dragoman[server,terminal]'",
            "python -m ensurepip (or: uv pip install pip)",
        ),
        (
            "uv/tools/dragoman/uv-receipt.toml",
            "[tool]",
            "uv tool install 'dragoman[embedded,server,terminal]'",
            "uv tool install --with pip 'dragoman[embedded]'",
        ),
    ],
    ids=["pip", "pipx", "older pipx", "pipx run", "uv tool"],
)
def test_install_command_matches_environment_tool(
    file: str, holds: str, line: str, for_pip: str, tmp_path: Path
) -> None:
    """Detected by the file that each tool writes: pipx 1.18.4, 1.7.1 and uv 0.13.9 (2026-11)."""
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(holds)
    assert extras.install_command("server", "terminal", prefix=str(path.parent)) == line
    assert extras.pip_install_command(str(path.parent)) == for_pip


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [
        ("none", "", "pip install --force-reinstall --no-deps x --index-url https://i"),
        (
            "venvs/dragoman/pipx_metadata.json",
            '{"environment": "dragoman"}',
            "pipx runpip dragoman install --force-reinstall --no-deps x --index-url https://i",
        ),
        ("uv-receipt.toml", "", "uv pip install --python {prefix} --reinstall --no-deps x --index-url https://i"),
    ],
    ids=["pip", "pipx", "uv tool"],
)
def test_replace_command_matches_environment_tool(file: str, content: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    prefix = str(path.parent)
    assert extras.replace_command("x", "https://i", prefix) == command.format(prefix=prefix)
    assert extras.replace_command("x", "", prefix).endswith(" --no-deps x")


def test_missing_system_library_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message is that of the loader in Debian's slim image (2026-11)."""

    class Finder:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "xllamacpp":
                raise ImportError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(ImportError, match=r"such file or directory; install it: apt-get install libgomp1 \(or: dnf"):
        Library({}, ("", 0), "")
