"""Finds the installed CLI; its capabilities follow from its version, which is queried once.

2.1.329 (Claude Code)
"""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias, cast, get_args

from dragoman.backends.claude_cli import command
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.process import kill
from dragoman.backends.claude_cli.versions import NATIVE_SINCE, TEXT_SINCE, Version, version_string
from dragoman.core.errors import ConfigError, one_of, quote
from dragoman.extras import npm_postinstall

Mode: TypeAlias = Literal["native", "text"]

_MODES: Final = ("auto", *get_args(Mode))
_INSTALL: Final = "npm install -g @anthropic-ai/claude-code"
_UPDATE: Final = f"run: claude update (or: {_INSTALL})"
_AT: Final = "at claude_cli.command"
_DEADLINE_S: Final = 20.0
"""It takes 0.1 s, on a busy machine a few seconds."""
_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,6})\.(\d{1,6})\.(\d{1,6})")
_MAX_VERSION_CHARS: Final = 200


class ClaudeInstall(NamedTuple):
    """The installed program."""

    path: str
    version: Version
    mode: Mode

    @property
    def name(self) -> str:
        """The version as text, `2.1.329`."""
        return version_string(self.version)


async def find_claude(config: ClaudeCliConfig, environ: Mapping[str, str]) -> ClaudeInstall:
    """Returns the program that the settings name, and the mode in which it is used.

    Raises: ConfigError: it is not installed, reports no version, or is too old; the message says what to run.
    """
    if config.tool_mode not in _MODES:
        raise ConfigError(
            f"unknown mode {quote(config.tool_mode)}{one_of(config.tool_mode, _MODES, 'expected ')} "
            "- at claude_cli.tool_mode"
        )
    found_at = shutil.which(os.path.expanduser(config.command), path=environ.get("PATH"))
    if found_at is None:
        raise ConfigError(f"there is no program {quote(config.command)}; install it: {_INSTALL} - {_AT}")
    path = os.path.abspath(found_at)  # its processes run in another folder
    output = await _version_output(path, command.environment(environ, config.env_passthrough, command.ModelSpec(""), 0))
    match = _VERSION.search(output)
    if not match:
        raise ConfigError(
            f"{path} --version says {quote(output[:_MAX_VERSION_CHARS])}, not a version of claude - {_AT}"
        )
    version = cast(Version, tuple(map(int, match.groups())))
    if version < TEXT_SINCE:
        raise ConfigError(f"claude {match[0]} is too old: it must be {version_string(TEXT_SINCE)} at least; {_UPDATE}")
    supported: Mode = "native" if version >= NATIVE_SINCE else "text"
    if config.tool_mode == "native" and supported != "native":
        raise ConfigError(
            f"claude {match[0]} is too old for tool mode native, which needs {version_string(NATIVE_SINCE)}; {_UPDATE},"
            " or use tool mode text - at claude_cli.tool_mode"
        )
    return ClaudeInstall(path, version, "text" if config.tool_mode == "text" else supported)


async def _version_output(path: str, environment: Mapping[str, str]) -> str:
    """Returns the output of `claude --version`."""
    try:
        child = await asyncio.create_subprocess_exec(
            *(path, "--version"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as e:
        raise ConfigError(
            f"cannot start {path}: {(e.strerror or str(e)).lower()}{_postinstall_hint(path)} - {_AT}"
        ) from None
    try:
        async with asyncio.timeout(_DEADLINE_S):
            output, _ = await child.communicate()
    except TimeoutError:
        raise ConfigError(
            f"{path} --version printed nothing within {_DEADLINE_S:g} s; try it by hand - {_AT}"
        ) from None
    finally:
        kill(child.pid)  # the process, or what it left behind
        with contextlib.suppress(ProcessLookupError):
            await child.wait()
    if child.returncode:
        text = output.decode("utf-8", "replace").strip()[:_MAX_VERSION_CHARS]
        raise ConfigError(
            f"{path} --version ended with status {child.returncode}: {quote(text)}{_postinstall_hint(path)} - {_AT}"
        )
    return output.decode("utf-8", "replace").strip()


def _postinstall_hint(path: str) -> str:
    """Returns what to run if the npm package was installed without its postinstall step."""
    step = npm_postinstall(path)
    return f": its install step did not run; run: {step}" if step else ""
