"""`dragoman doctor`: checks the installation and the settings, and prints the commands that fix problems."""

import argparse
import asyncio
import itertools
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Final

import msgspec

from dragoman import __version__, compose
from dragoman import config as settings
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.cli._common import (
    BASE_URL,
    add_claude_flag,
    add_config_flag,
    add_upstream_details,
    add_upstream_flag,
    upstream_flags,
)
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.doctor import gateway as gateway_checks
from dragoman.cli.doctor import local
from dragoman.cli.doctor import servers as server_checks
from dragoman.cli.doctor.finding import Finding
from dragoman.cli.doctor.plugin_findings import plugins_found
from dragoman.cli.doctor.report import format_report
from dragoman.cli.doctor.state_findings import state_found
from dragoman.config.own_formats import with_formats
from dragoman.core.errors import ConfigError

_WIDTH: Final = 100
_NARROWEST: Final = 60
_EXAMPLES: Final = """
    examples:
      dragoman doctor                check the settings
      dragoman doctor --claude-cli   also require Claude Code
      dragoman doctor --weights      also check the downloaded weights
      dragoman doctor --json

    exit status:
      0  all parts that the settings and options use work
      1  a part does not work; the output says after `→` what to do
      2  the command is invalid
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "doctor",
        help="check the installation, the settings and the servers",
        description="Check the settings, the optional packages, downloaded weights, upstream servers, the installed "
        "agents, Claude Code's login, and a running gateway. For each problem, print the command that fixes it. No "
        "model is called, nothing is downloaded, and no login is changed.",
        epilog=_EXAMPLES,
    )
    add_config_flag(command)
    add_upstream_flag(command, f"also check the server {BASE_URL}")
    add_upstream_details(command)
    add_claude_flag(command, "also require Claude Code (`claude`): exit with status 1 if it does not work")
    command.add_argument(
        "--weights", action="store_true", help="also read all downloaded weights, and verify their SHA-256 checksums"
    )
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the findings; returns 1 if something does not work.

    Raises: ConfigError: an option for the server of `--upstream` is given without it.
    """
    flags = upstream_flags(args)
    line = ProgressLine(sys.stderr)
    looking = partial(local.weights_found, thorough=args.weights, report_progress=line.print)
    with line.showing("looking"):
        groups = asyncio.run(_findings(args.config, flags, looking))
    findings = list(itertools.chain.from_iterable(groups))
    if args.json:
        print(json.dumps(msgspec.to_builtins(findings), ensure_ascii=False, indent=2))
    else:
        tty = sys.stdout.isatty()
        width = min(_WIDTH, max(_NARROWEST, get_terminal_size().columns)) if tty else _WIDTH
        print(format_report(groups, width, colour=tty and not os.environ.get("NO_COLOR")))
    return 1 if any(finding.verdict == "no" for finding in findings) else 0


async def _findings(
    named: Path | None, flags: Mapping[str, object], weights_found: "partial[list[Finding]]"
) -> list[Sequence[Finding]]:
    """Returns the findings in groups."""
    itself = Finding("dragoman", "ok", f"{__version__}, Python {platform.python_version()} at {sys.executable}")
    path = compose.settings_path(named)
    try:
        config, origin = settings.load(path, os.environ, flags)
    except ConfigError as error:
        return await _without_settings([itself, local.wrong_settings(path, error)], weights_found)
    with_model = compose.serves_embedded(config, origin)
    extras = local.extras_findings("server", *(("embedded",) if with_model else ()))
    servers, claude, unconfigured_servers, agents, gateway, hardware, state = await asyncio.gather(
        asyncio.gather(
            *(
                server_checks.server_finding(name, with_formats(server, config.formats))
                for name, server in config.upstreams.items()
            )
        ),
        local.claude(config.claude_cli),
        server_checks.unconfigured_servers(config.upstreams.values(), config.server),
        local.agents_found(),
        gateway_checks.gateway(config.server, _serve_command(named, flags), len(config.keys)),
        local.hardware_found(config) if with_model else _nothing(),
        state_found(config.state),
    )
    return [
        [itself, *local.settings_found(path, config, origin), extras, *plugins_found(config), *state],
        [*servers, *weights_found(config, served=with_model), *hardware, *claude, *unconfigured_servers, *agents],
        gateway,
    ]


async def _nothing() -> list[Finding]:
    return []


def _serve_command(config: Path | None, flags: Mapping[str, object]) -> str:
    """Returns the command that starts a gateway with the checked settings."""
    parts = ["dragoman", "serve"]
    if config is not None:
        parts += ["--config", str(config)]
    if flags.get("upstreams.upstream.url"):
        parts += ["--upstream", str(flags["upstreams.upstream.url"])]
    for key, option in (("api", "--upstream-api"), ("api_key_env", "--api-key-env")):
        if value := flags.get(f"upstreams.upstream.{key}"):
            parts += [option, str(value)]
    if flags.get("claude_cli.enabled"):
        parts.append("--claude-cli")
    return shlex.join(parts)


async def _without_settings(
    findings: list[Finding], weights_found: "partial[list[Finding]]"
) -> list[Sequence[Finding]]:
    """Returns the findings that need no settings: the installation, and what is running."""
    usual = settings.Config()
    claude, unconfigured_servers = await asyncio.gather(
        local.claude(ClaudeCliConfig()), server_checks.unconfigured_servers((), usual.server)
    )
    return [
        [*findings, local.extras_findings("server")],
        [*weights_found(usual, served=True), *claude, *unconfigured_servers],
    ]
