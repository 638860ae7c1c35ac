"""Whether somebody is logged in, as the CLI itself says; what it keeps of that is never looked at.

    {"loggedIn": true, "authMethod": "api_key", "apiKeySource": "ANTHROPIC_API_KEY", …}

Source: `claude auth status` of 2.1.329, and of 2.1.40, the first that has it; November 2026.
"""

import asyncio
import tempfile
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from dragoman.backends.claude_cli.installed import Installed

COMMAND: Final = "claude auth login"
"""What logs in, by the CLI's own words."""
_SINCE: Final = (2, 1, 40)
"""Older ones would take these words for a prompt, and ask their model."""
_DEADLINE_S: Final = 20.0


class Login(NamedTuple):
    """What it says."""

    there: bool | None
    """None: it does not say, as old versions do not."""
    how: str = ""


class _Status(msgspec.Struct, rename="camel"):
    logged_in: bool
    auth_method: str = ""
    api_key_source: str = ""
    subscription_type: str | None = None


async def asked(program: Installed, environ: Mapping[str, str]) -> Login:
    """What this program says with these variables, which should be those that its processes get."""
    if program.version < _SINCE:
        return Login(None)
    with tempfile.TemporaryDirectory(prefix="dragoman-") as folder:  # no project's settings have a say
        child = await asyncio.create_subprocess_exec(
            *(program.path, "auth", "status"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environ),
            cwd=folder,
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                said, _ = await child.communicate()
        except TimeoutError:
            child.kill()
            await child.wait()
            return Login(None)
    return read(said)


def read(said: bytes) -> Login:
    """Its answer; of anything else nothing is made."""
    try:
        status = msgspec.json.decode(said, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Login(None)
    how = (status.auth_method, status.api_key_source, status.subscription_type or "")
    return Login(status.logged_in, ", ".join(filter(None, how)))
