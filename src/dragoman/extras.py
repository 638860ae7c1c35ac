"""Optional dependencies: which extras are installed, and the command that installs the others.

    missing_extras("server", "terminal")   ["terminal"]: those that are not installed; imports nothing
    install_command("server")              pip install 'dragoman[server]', or the command of pipx or uv tool

pipx and uv tool keep a program in an environment of its own, which no `pip` on the user's path reaches.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = {
    "server": (
        "alembic",
        "httptools",
        "jsonschema_rs",
        "platformdirs",
        "prometheus_client",
        "psutil",
        "rich",
        "sqlalchemy",
        "structlog",
        "uvicorn",
    ),
    "console": ("starlette", "textual"),
    "embedded": ("huggingface_hub", "jinja2", "llguidance", "psutil", "pypdf", "pypdfium2", "rich", "xllamacpp"),
    "guard": ("jsonschema_rs",),
    "limits": ("genai_prices", "limits", "redis"),
    "otel": ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    "parquet": ("arro3.core", "arro3.io"),
    "postgresql": ("psycopg",),
    "ray": ("ray",),
    "state": ("psycopg", "redis"),
    "templates": ("jinja2",),
    "terminal": ("argcomplete",),
    "tools": ("httpx2", "mcp", "pypdf", "trafilatura"),
}
"""The modules that each extra installs; each is imported only where it is used."""


def missing_extras(*extras: str) -> list[str]:
    """Returns those of these extras of which a module is not installed."""
    return [extra for extra in extras if not all(map(_is_installed, PACKAGES[extra]))]


def install_command(*extras: str, prefix: str = sys.prefix) -> str:
    """Returns the command that installs these extras into the environment at `prefix`."""
    match _installer(Path(prefix)):
        case "pipx", name:
            return f"pipx inject {name} {_requirement(*_installed_extras(), *extras)}"
        case "older pipx", name:  # its inject takes this for a package that it has already
            return f"pipx runpip {name} install {_requirement(*extras)}"
        case "uv", _:  # rebuilds the environment with only what the command names
            return f"uv tool install {_requirement(*_installed_extras(), *extras)}"
        case _:
            return f"pip install {_requirement(*extras)}"


def pip_install_command(prefix: str = sys.prefix) -> str:
    """Returns the command that installs pip itself into the environment at `prefix`."""
    match _installer(Path(prefix)):
        case "pipx" | "older pipx", name:
            return f"pipx inject {name} pip"
        case "uv", _:
            return f"uv tool install --with pip {_requirement(*_installed_extras())}"
        case _:
            return "python -m ensurepip (or: uv pip install pip)"


def replace_command(package: str, index_url: str, prefix: str = sys.prefix) -> str:
    """Returns the command that replaces a package in the environment at `prefix` by another build of it.

    Args:
        package: the name of the package.
        index_url: the package index with the build; empty: PyPI.
        prefix: the environment.
    """
    rest = f"{package} --index-url {index_url}" if index_url else package
    match _installer(Path(prefix)):
        case "pipx" | "older pipx", name:
            return f"pipx runpip {name} install --force-reinstall --no-deps {rest}"
        case "uv", _:
            return f"uv pip install --python {prefix} --reinstall --no-deps {rest}"
        case _:
            return f"pip install --force-reinstall --no-deps {rest}"


def npm_postinstall(program: str) -> str:
    """Returns the command that replaces an npm package's stub by the real program; "" if `program` is not such a stub.

    npm packages that ship one program for each system install a script first, which their postinstall step replaces.
    That step is left out by `npm install --ignore-scripts` and by some settings of pnpm.
    """
    package = Path(program).resolve().parent.parent
    steps = (package / name for name in ("install.cjs", "postinstall.mjs"))
    return next((f"node {step}" for step in steps if step.is_file()), "")


def _installer(prefix: Path) -> tuple[str, str]:
    """Returns the program that created an environment, and the environment's name in that program.

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


def _installed_extras() -> list[str]:
    """Returns the installed extras, without those that another installed extra includes."""
    installed = [extra for extra in PACKAGES if not missing_extras(extra)]
    return [extra for extra in installed if not any(set(PACKAGES[extra]) < set(PACKAGES[other]) for other in installed)]


def _requirement(*extras: str) -> str:
    return f"'dragoman[{','.join(dict.fromkeys(extras))}]'" if extras else "dragoman"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
