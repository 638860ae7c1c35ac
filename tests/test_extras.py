"""What is optional, and the line that brings it, as whoever made the environment wants it."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from dragoman import extras

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
OPTIONAL = {name: wanted for name, wanted in PROJECT["optional-dependencies"].items() if name != "all"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_table_is_that_of_the_package() -> None:
    """uvloop is not looked for: it is not everywhere, and nothing fails without."""
    brought_by = packages_distributions()
    for name, wanted in OPTIONAL.items():
        packages = {normal(re.split(r"[<>=;\[ ]", each)[0]) for each in wanted} - {"uvloop"}
        assert {normal(brought_by[module][0]) for module in extras.PACKAGES[name]} == packages
    assert set(extras.PACKAGES) == set(OPTIONAL)
    (everything,) = PROJECT["optional-dependencies"]["all"]
    assert set(everything.removeprefix("dragoman[").removesuffix("]").split(",")) == set(OPTIONAL)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that has the engine and no more."""
    monkeypatch.setattr(extras, "_is_here", lambda module: module in extras.PACKAGES["embedded"])


@pytest.mark.usefixtures("without")
def test_what_is_missing() -> None:
    assert extras.missing(*extras.PACKAGES) == ["server", "guard", "hub"]


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("folder", "file", "line", "for_pip"),
    [
        (".venv", "pyvenv.cfg", "pip install 'dragoman[server,hub]'", "python -m ensurepip (or: uv pip install pip)"),
        (
            "pipx/venvs/dragoman-next",
            "pipx_metadata.json",
            "pipx inject --force dragoman-next 'dragoman[server,hub]'",
            "pipx inject dragoman-next pip",
        ),
        ("pipx/.cache/0f3a", "pipx_metadata.json", "pip install 'dragoman[server,hub]'", "python -m ensurepip"),
        (
            "uv/tools/dragoman",
            "uv-receipt.toml",
            "uv tool install 'dragoman[embedded,server,hub]'",
            "uv tool install --with pip 'dragoman[embedded]'",
        ),
    ],
)
def test_what_to_type(folder: str, file: str, line: str, for_pip: str, tmp_path: Path) -> None:
    """By the file that each leaves in what it makes."""
    prefix = tmp_path / folder
    prefix.mkdir(parents=True)
    (prefix / file).touch()
    assert extras.to_type("server", "hub", prefix=str(prefix)) == line
    assert extras.pip_to_type(str(prefix)).startswith(for_pip)
