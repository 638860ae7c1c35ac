"""What several commands share: flags for upstream servers, missing extras, progress, and texts for the user."""

import argparse
import logging
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from dragoman import compose, dialects, extras
from dragoman import config as settings
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.catalog import models
from dragoman.cli._progress_line import ProgressLine
from dragoman.cli._terminal_safe import printable
from dragoman.cli.pull import download_weights
from dragoman.core.errors import ConfigError

LOG_LINE: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def add_server_flags(group: "argparse._ArgumentGroup") -> None:
    """Adds `--upstream`, `--upstream-api` and `--claude-cli`; `upstream_flags` turns them into settings."""
    group.add_argument("--upstream", metavar="URL", help="the models of this server: http://127.0.0.1:1234/v1")
    group.add_argument(
        "--upstream-api",
        choices=dialects.names(),
        metavar="API",
        help="the API of --upstream: %(choices)s (default: openai_chat)",
    )
    group.add_argument(
        "--claude-cli", action="store_true", default=None, help="the models of the installed claude, by its own login"
    )


def add_config_flag(command: "argparse._ActionsContainer") -> None:
    """Adds `--config`, the path of the settings file."""
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ~/.config/dragoman/config.toml)"
    )


def upstream_flags(args: argparse.Namespace) -> dict[str, object]:
    """Returns the settings that `--upstream`, `--upstream-api` and `--claude-cli` set, by their keys.

    Raises: ConfigError: `--upstream-api` without `--upstream`.
    """
    if args.upstream_api and not args.upstream:
        raise ConfigError("--upstream-api is the API of an upstream server; name that with --upstream URL")
    return {
        "upstreams.upstream.url": args.upstream,
        "upstreams.upstream.api": args.upstream_api,
        "claude_cli.enabled": args.claude_cli,
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

    Raises: ConfigError, RemoteError: as `compose.get_weights`.
    """
    return compose.get_weights(config, print_status, download_weights)


def waiting(text: str) -> AbstractContextManager[None]:
    """Shows the text on the terminal's last line while the body of the `with` statement runs."""
    return ProgressLine(sys.stderr).showing(text)


async def check_claude_login(config: settings.Config, report: compose.Report) -> None:
    """Runs `compose.check_claude_login`, and shows on the terminal that it waits for `claude`.

    Raises: ConfigError: as `compose.check_claude_login`.
    """
    await compose.check_claude_login(config, report, waiting)


def print_status(text: str) -> None:
    """Prints one line for the user to standard error, with the prefix `dragoman:`."""
    print(printable(f"dragoman: {text}"), file=sys.stderr, flush=True)


def format_settings(config: settings.Config, origin: dict[str, str]) -> str:
    """Returns every setting with its value and its origin, as TOML; keys are not shown.

    Args:
        config: the settings.
        origin: where each setting that is not at its default comes from, by its key.
    """
    lines = []
    for key, *_ in settings.setting_docs():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        if key == "embedded.model":
            value = value or models.default().name
        hidden = key in settings.SECRET and value
        line = f"# {key}: {len(value)} not shown" if hidden else f"{key} = {settings.toml(value)}"
        lines.append(f"{line}  # {origin.get(key, 'default')}")
    for server, upstream in config.upstreams.items():
        for field, value in msgspec.structs.asdict(upstream).items():
            key = f"upstreams.{server}.{field}"
            unset = "not shown" if field == "api_key" and value else "not set" if value is None else ""
            line = f"# {key}: {unset}" if unset else f"{key} = {settings.toml(value)}"
            lines.append(f"{line}  # {origin.get(key, 'default')}")
    for alias, target in config.model_aliases.items():
        lines.append(
            f"model_aliases.{settings.toml(alias)} = {settings.toml(target)}  # {origin[f'model_aliases.{alias}']}"
        )
    return "\n".join([*lines, "# settings are good"])


class TerminalFormatter(logging.Formatter):
    """Formats log records for a terminal: characters that would control it are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line with control characters as escapes such as `\\x1b`."""
        return printable(super().format(record))
