"""What need not be installed with Dragoman, and what to type where it is missing.

    missing("server", "terminal")   ["terminal"]: of these, what is not here; nothing is imported for it
    to_type("server")               pip install 'dragoman[server]', or what pipx or uv tool wants in its place

pipx and uv tool keep a program in an environment of its own, which no `pip` on the user's path reaches.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "server": ("aiohttp", "httptools", "jsonschema_rs", "prometheus_client", "psutil", "uvicorn"),
    "embedded": ("huggingface_hub", "jinja2", "llguidance", "xllamacpp"),
    "guard": ("jsonschema_rs",),
    "templates": ("jinja2",),
    "terminal": ("argcomplete", "rich"),
}
"""By extra the modules that it brings; each is imported only where it is used."""


def missing(*wanted: str) -> list[str]:
    """Those of these extras that are not here, or not whole."""
    return [extra for extra in wanted if not all(map(_is_here, PACKAGES[extra]))]


def to_type(*wanted: str, prefix: str = sys.prefix) -> str:
    """The line that brings these extras into the environment at `prefix`."""
    match _made_by(Path(prefix)):
        case "pipx", name:
            return f"pipx inject {name} {_requirement(*_here(), *wanted)}"
        case "older pipx", name:  # its inject takes this for a package that it has already
            return f"pipx runpip {name} install {_requirement(*wanted)}"
        case "uv", _:  # rebuilds the environment, with what the line names and nothing else
            return f"uv tool install {_requirement(*_here(), *wanted)}"
        case _:
            return f"pip install {_requirement(*wanted)}"


def pip_to_type(prefix: str = sys.prefix) -> str:
    """The line that brings pip itself into the environment at `prefix`."""
    match _made_by(Path(prefix)):
        case "pipx" | "older pipx", name:
            return f"pipx inject {name} pip"
        case "uv", _:
            return f"uv tool install --with pip {_requirement(*_here())}"
        case _:
            return "python -m ensurepip (or: uv pip install pip)"


def npm_postinstall(program: str) -> str:
    """The line that puts the real program in place of an npm package's stub, or "" where `program` is not such a stub.

    npm packages that ship one program for each system install a script first, which their postinstall step replaces.
    That step is left out by `npm install --ignore-scripts` and by some settings of pnpm.
    """
    package = Path(program).resolve().parent.parent
    steps = (package / name for name in ("install.cjs", "postinstall.mjs"))
    return next((f"node {step}" for step in steps if step.is_file()), "")


def _made_by(prefix: Path) -> tuple[str, str]:
    """What made an environment, and the name by which that knows it.

    Sources: pipx 1.17, which writes the name down where `inject` may be given extras
    (https://github.com/pypa/pipx/pull/1926, 2026-07), and none for `pipx run`; uv,
    https://docs.astral.sh/uv/concepts/tools/ (2026-11).
    """
    if (prefix / "uv-receipt.toml").is_file():
        return "uv", prefix.name
    try:
        metadata = json.loads((prefix / "pipx_metadata.json").read_bytes())
    except (OSError, ValueError):
        return "", ""
    if "environment" in metadata:
        return ("pipx", metadata["environment"]) if metadata["environment"] else ("", "")
    return ("older pipx", prefix.name) if prefix.parent.name == "venvs" else ("", "")


def _here() -> list[str]:
    """The extras that are here, without those that another of them brings too."""
    here = [extra for extra in PACKAGES if not missing(extra)]
    return [extra for extra in here if not any(set(PACKAGES[extra]) < set(PACKAGES[other]) for other in here)]


def _requirement(*extras: str) -> str:
    return f"'dragoman[{','.join(dict.fromkeys(extras))}]'" if extras else "dragoman"


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
