"""What need not be installed with Dragoman, and what to type where it is missing.

    missing("server", "hub")   ["hub"]: of these, what is not here; nothing is imported for it
    to_type("server")          pip install 'dragoman[server]', or what pipx or uv tool wants in its place

pipx and uv tool keep a program in an environment of its own, which no `pip` on the user's path reaches.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "server": ("aiohttp", "httptools", "jsonschema_rs", "prometheus_client", "psutil", "uvicorn"),
    "embedded": ("jinja2", "llguidance", "xllamacpp"),
    "guard": ("jsonschema_rs",),
    "templates": ("jinja2",),
    "hub": ("huggingface_hub",),
}
"""By extra the modules that it brings; each is imported only where it is used."""


def missing(*wanted: str) -> list[str]:
    """Those of these extras that are not here, or not whole."""
    return [extra for extra in wanted if not all(map(_is_here, PACKAGES[extra]))]


def to_type(*wanted: str, prefix: str = sys.prefix) -> str:
    """The line that brings these extras into the environment at `prefix`."""
    match _made_by(Path(prefix)):
        case "pipx":
            # --force: before 1.17 pipx took this for a package that it has already.
            return f"pipx inject --force {Path(prefix).name} {_requirement(wanted)}"
        case "uv":  # it makes the environment anew, with what the line names and nothing else
            return f"uv tool install {_requirement((*_here(), *wanted))}"
        case _:
            return f"pip install {_requirement(wanted)}"


def pip_to_type(prefix: str = sys.prefix) -> str:
    """The line that brings pip itself into the environment at `prefix`."""
    match _made_by(Path(prefix)):
        case "pipx":
            return f"pipx inject {Path(prefix).name} pip"
        case "uv":
            return f"uv tool install --with pip {_requirement(_here())}"
        case _:
            return "python -m ensurepip (or: uv pip install pip)"


def _made_by(prefix: Path) -> str:
    """Whose environment it is.

    Sources: pipx, `src/pipx/pipx_metadata_file.py`; its `pipx run` has the file too, but in no folder `venvs`. uv,
    https://docs.astral.sh/uv/concepts/tools/ (2026-11).
    """
    if prefix.parent.name == "venvs" and (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    return "uv" if (prefix / "uv-receipt.toml").is_file() else ""


def _here() -> list[str]:
    """The extras that are here, without those that another of them brings too."""
    here = [extra for extra in PACKAGES if not missing(extra)]
    return [extra for extra in here if not any(set(PACKAGES[extra]) < set(PACKAGES[other]) for other in here)]


def _requirement(extras: tuple[str, ...] | list[str]) -> str:
    return f"'dragoman[{','.join(dict.fromkeys(extras))}]'" if extras else "dragoman"


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
