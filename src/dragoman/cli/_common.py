"""What several commands share: options for upstream servers, missing extras, progress, and texts for the user."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from dragoman import config as settings
from dragoman import dialects, extras
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.http.config import HttpConfig
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.pull import download_weights
from dragoman.compose import claude_login, embedded_weights, progress
from dragoman.config.effective import key_as_toml, setting_rows, value_as_toml
from dragoman.config.server import ServerConfig
from dragoman.core.errors import BackendUnavailableError, ConfigError

CAPTURE_HELP: Final = "folder of one capture, folder of several captures (the newest is used), or a bundle (.zip)"
CAPTURE_DIR_HELP: Final = (
    "capture each exchange (a client's request, the resulting requests to the model, and the response) in this folder, "
    "for the commands replay and bundle"
)
EMBEDDED_MODEL: Final = "a name or alias from `dragoman pull --list`, hf:OWNER/REPO/FILE.gguf, or a .gguf file"
EXPLAIN_HELP: Final = "print how each part of the raw text was parsed, and why"
TOOLS_FILE: Final = "JSON file of tools in OpenAI or Anthropic format (a list, or an object with `tools`)"
_MAX_LINES: Final = 12
"""Maximum number of lines of a difference that are printed as text."""
BASE_URL: Final = "at this base URL, such as http://127.0.0.1:1234/v1"


def add_server_flags(group: "argparse._ArgumentGroup") -> None:
    """Adds `--upstream` and the options for its server, and `--claude-cli`; for `upstream_flags`."""
    add_upstream_flag(
        group,
        f"add the server {BASE_URL}; for several servers, use [upstreams.NAME] in the settings file",
    )
    add_upstream_details(group)
    add_claude_flag(group, "add the models of the installed Claude Code (`claude`), with its existing login")


def add_upstream_flag(group: "argparse._ActionsContainer", use: str) -> None:
    """Adds `--upstream`, with the help `use`."""
    group.add_argument("--upstream", metavar="URL", help=use)


def add_upstream_details(group: "argparse._ActionsContainer") -> None:
    """Adds `--upstream-api` and `--api-key-env`, the details of the server of `--upstream`."""
    group.add_argument(
        "--upstream-api",
        choices=dialects.names(),
        metavar="API",
        help="API of the server of --upstream: %(choices)s (default: openai_chat)",
    )
    add_api_key_flag(group, "the server of --upstream")


def add_claude_flag(group: "argparse._ActionsContainer", use: str) -> None:
    """Adds `--claude-cli`, with the help `use`."""
    group.add_argument("--claude-cli", action="store_true", default=None, help=use)


def add_gateway_flag(group: "argparse._ActionsContainer", default: str | None = None) -> None:
    """Adds `--gateway`, for a running gateway."""
    group.add_argument(
        "--gateway",
        metavar="URL",
        default=default,
        help="use only the running gateway at this URL, such as http://127.0.0.1:8484; it is sent the API key in "
        "$DRAGOMAN_API_KEY, else the first one of the setting server.api_keys",
    )


def gateway_key(config: ServerConfig) -> str:
    """Returns the API key that a running gateway is sent; empty: none."""
    return os.environ.get("DRAGOMAN_API_KEY", "") or next(iter(config.api_keys), "")


def add_api_key_flag(group: "argparse._ActionsContainer", server: str) -> None:
    """Adds `--api-key-env`, for the key of `server`."""
    group.add_argument(
        "--api-key-env",
        default="",
        metavar="VAR",
        help=f"name of the environment variable that holds the API key of {server}",
    )


def add_config_flag(command: "argparse._ActionsContainer", more: str = "", default: str | None = None) -> None:
    """Adds `--config`, the path of the settings file; `more` is part of the help."""
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        default=default,
        help=f"settings file{more} (default: $DRAGOMAN_CONFIG, else ~/.config/dragoman/config.toml)",
    )


def upstream_flags(args: argparse.Namespace) -> dict[str, object]:
    """Returns the settings that the options for backends set, by their keys.

    Raises: ConfigError: `--upstream-api` or `--api-key-env` without `--upstream`.
    """
    if args.upstream_api and not args.upstream:
        raise ConfigError("--upstream-api is the API of an upstream server; name that with --upstream URL")
    if args.api_key_env and not args.upstream:
        raise ConfigError("--api-key-env is for the API key of an upstream server; name that with --upstream URL")
    return {
        "upstreams.upstream.url": args.upstream,
        "upstreams.upstream.api": args.upstream_api,
        "upstreams.upstream.api_key_env": args.api_key_env or None,
        "claude_cli.enabled": getattr(args, "claude_cli", None),
    }


def missing_extras_message(*extra_names: str, doing: str = "serving") -> str:
    """Returns a text with the command that installs the extras that are missing, or "" if none is.

    Imports nothing.

    Args:
        extra_names: names of extras, such as `server`.
        doing: what needs them, in one word, for the text.
    """
    names = extras.missing_extras(*extra_names)
    return f"{doing} needs more than is installed: {extras.install_command(*names)}" if names else ""


def require_extras(*extra_names: str, doing: str) -> None:
    """Raises: ConfigError: one of these extras is missing; the message has the command that installs it."""
    if missing := missing_extras_message(*extra_names, doing=doing):
        raise ConfigError(missing)


def get_weights(config: EmbeddedConfig) -> Path:
    """Returns the weights of the configured model; a download shows its progress on standard error.

    Raises: ConfigError, RemoteError: as `embedded_weights.get_weights`.
    """
    return embedded_weights.get_weights(config, print_status, download_weights)


def waiting(text: str) -> AbstractContextManager[None]:
    """Shows the text on the terminal's last line while the body of the `with` statement runs."""
    return ProgressLine(sys.stderr).showing(text)


async def check_claude_login(config: settings.Config, report: progress.Report) -> None:
    """Runs `claude_login.check_claude_login`, and shows on the terminal that it waits for `claude`.

    Raises: ConfigError: as `claude_login.check_claude_login`.
    """
    await claude_login.check_claude_login(config, report, waiting)


def print_status(text: str) -> None:
    """Prints one line for the user to standard error, with the prefix `dragoman:`."""
    print(printable(f"dragoman: {text}"), file=sys.stderr, flush=True)


def format_settings(config: settings.Config, origin: dict[str, str], *, everything: bool = True) -> str:
    """Returns the settings as TOML, each with its origin; secrets are not shown. Arguments as `setting_rows`."""
    lines = []
    for row in setting_rows(config, origin, everything=everything):
        key, value = key_as_toml(str(row["key"])), row.get("value")
        note = f"{row['hidden']}not shown" if "hidden" in row else "not set" if value is None else ""
        line = f"# {key}: {note}" if note else f"{key} = {value_as_toml(value)}"
        lines.append(f"{line}  # {row['origin']}")
    rest = [] if everything else ["# all other settings have their defaults; --all prints them too"]
    return "\n".join([*lines, *rest, "# the settings are valid"])


def first_lines(difference: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a difference to print, then how many more there are."""
    yield from difference[:_MAX_LINES]
    if (more := len(difference) - _MAX_LINES) > 0:
        yield f"… {more} more lines; --json prints all"


async def listed_models(server: HttpConfig) -> tuple[str, ...] | None:
    """Returns the models that the settings or the server list, or None if the server does not respond."""
    if server.models:
        return server.models
    from dragoman.backends.probe.connect import list_models, open_connection
    from dragoman.backends.probe.server_info import ServerInfo

    async with open_connection(server, os.environ) as connection:
        try:
            return await list_models(connection, ServerInfo(connection, server.url), server, os.environ)
        except BackendUnavailableError:
            return None
