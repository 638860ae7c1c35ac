"""Whether a user is logged in, as the CLI itself reports; its credentials are never read.

    {"loggedIn": true, "authMethod": "api_key", "apiKeySource": "ANTHROPIC_API_KEY", …}

Source: `claude auth status` of 2.1.329, and of 2.1.40, the first that has it; November 2026.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dragoman.backends.claude_cli import command
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.claude_cli.discovery import ClaudeInstall, find_claude
from dragoman.backends.claude_cli.errors import NOT_LOGGED_IN
from dragoman.backends.claude_cli.process import kill, working_directory
from dragoman.core.errors import ConfigError

_SINCE: Final = (2, 1, 40)
"""Older versions would send these words to the model as a prompt."""
_DEADLINE_S: Final = 20.0


class AuthStatus(NamedTuple):
    """The login status."""

    is_logged_in: bool | None
    """Whether a user is logged in; None: unknown, as with old versions."""
    method: str = ""


class _Status(msgspec.Struct, rename="camel"):
    logged_in: bool
    auth_method: str = ""
    api_key_source: str = ""
    subscription_type: str | None = None


async def login_problem(config: ClaudeCliConfig, environ: Mapping[str, str]) -> str:
    """Returns a message if no user is logged in; "" if one is, or if the CLI does not report it.

    Raises: ConfigError: `claude` is not installed, or cannot be used; see `find_claude`.
    """
    program = await find_claude(config, environ)
    return NOT_LOGGED_IN if (await query_auth_status(program, config, environ)).is_logged_in is False else ""


async def query_auth_status(program: ClaudeInstall, config: ClaudeCliConfig, environ: Mapping[str, str]) -> AuthStatus:
    """Runs `claude auth status` with the environment that its other processes get.

    Raises: ConfigError: it cannot be started in Dragoman's own folder.
    """
    if program.version < _SINCE:
        return AuthStatus(None)
    try:
        child = await asyncio.create_subprocess_exec(
            *(program.path, "auth", "status"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=command.environment(environ, config.env_passthrough, command.ModelSpec(""), 0),
            cwd=working_directory(),  # no project settings apply there
            start_new_session=True,
        )
    except OSError as e:
        message = f"cannot start {program.path} in Dragoman's own folder: {e}; name another by DRAGOMAN_HOME"
        raise ConfigError(message) from None
    output = b""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            output, _ = await child.communicate()
    except TimeoutError:
        pass
    finally:
        kill(child.pid)
        with contextlib.suppress(ProcessLookupError):
            await child.wait()
    return parse_status(output)


def parse_status(output: bytes) -> AuthStatus:
    """Parses the output; anything unexpected means that the status is unknown."""
    try:
        status = msgspec.json.decode(output, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return AuthStatus(None)
    method = (status.auth_method, status.api_key_source, status.subscription_type or "")
    return AuthStatus(status.logged_in, ", ".join(filter(None, method)))
