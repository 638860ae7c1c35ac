"""Checks the login of the Claude Code CLI before the gateway starts."""

import os
from urllib.parse import urlsplit

from dragoman import config as settings
from dragoman.compose.progress import Report, Waiting, no_waiting
from dragoman.core.errors import ConfigError
from dragoman.host_names import LOOPBACK


async def check_claude_login(config: settings.Config, report: Report, waiting: Waiting = no_waiting) -> None:
    """Runs `claude` to see whether a user is logged in, if the settings enable it, and reports if none is.

    Args:
        config: the settings.
        report: receives one line if claude is not logged in.
        waiting: is entered with a text while `claude` runs.

    Raises:
        ConfigError: `claude` is not installed, cannot be used, or would send its requests to this same gateway.
    """
    if not config.claude_cli.enabled:
        return
    if _is_this_gateway(os.environ.get("ANTHROPIC_BASE_URL", ""), config.server.port):
        raise ConfigError(
            "claude would ask this very gateway, which would ask claude: unset ANTHROPIC_BASE_URL, which names it"
        )
    from dragoman.backends.claude_cli import auth_status

    with waiting("asking claude whether it is logged in"):
        missing = await auth_status.login_problem(config.claude_cli, os.environ)
    if missing:
        report(missing)


def _is_this_gateway(url: str, port: int) -> bool:
    try:
        named = urlsplit(url)
        return named.hostname in LOOPBACK and named.port == port
    except ValueError:
        return False
