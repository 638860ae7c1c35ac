"""What is installed, and what it can do; asked once."""

import asyncio
import re
import shutil
from collections.abc import Mapping
from typing import Final, NamedTuple

from dragoman.backends.claude_cli_config import ClaudeCliConfig
from dragoman.core.errors import ConfigError, one_of, quote

_MODES: Final = ("auto", "native", "text")
_NATIVE_SINCE: Final = (2, 1, 0)
_TEXT_SINCE: Final = (2, 0, 0)
_INSTALL: Final = "npm install -g @anthropic-ai/claude-code"
_DEADLINE_S: Final = 20.0


class Installed(NamedTuple):
    """The program."""

    path: str
    version: str
    mode: str


async def find(config: ClaudeCliConfig, environ: Mapping[str, str]) -> Installed:
    """The program that the settings name.

    Raises: ConfigError: it is not there, says nothing of its version, or cannot do what it must.
    """
    if config.mode not in _MODES:
        raise ConfigError(f"unknown mode {quote(config.mode)}{one_of(config.mode, _MODES, '')} - at claude_cli.mode")
    path = shutil.which(config.command, path=environ.get("PATH"))
    if path is None:
        raise ConfigError(f"there is no {config.command} here; install it: {_INSTALL} - at claude_cli.command")
    said = await _asked(path, environ)
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    if not found:
        raise ConfigError(f"{path} --version says {quote(said)}, no version - at claude_cli.command")
    version = tuple(map(int, found.groups()))
    if version < _TEXT_SINCE:
        raise ConfigError(f"claude {found[0]} is too old; update it: claude update")
    mode = config.mode if config.mode != "auto" else "native" if version >= _NATIVE_SINCE else "text"
    return Installed(path, found[0], mode)


async def _asked(path: str, environ: Mapping[str, str]) -> str:
    child = await asyncio.create_subprocess_exec(
        *(path, "--version"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environ),
    )
    try:
        async with asyncio.timeout(_DEADLINE_S):
            said, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return ""
    return said.decode("utf-8", "replace").strip()
