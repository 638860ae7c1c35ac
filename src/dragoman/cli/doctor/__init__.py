"""`dragoman doctor`: whether what is set up here works, and what to type where it does not."""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from dragoman import __version__, profiles
from dragoman.backends import weights
from dragoman.backends.claude_cli_config import ClaudeCliConfig
from dragoman.backends.http_config import HttpConfig
from dragoman.cli import serve
from dragoman.core.errors import BackendError, ConfigError, DragomanError
from dragoman.server import config as settings

if TYPE_CHECKING:
    from dragoman.server.counted import Calls

_WIDTH: Final = 100
_EXTRAS: Final = ("server", "embedded", "templates", "hub")


Verdict: TypeAlias = Literal["ok", "no", "note"]
"""`no`: it is to be used, and does not work; `note`: worth knowing, and in nobody's way."""
_MODES: Final = {
    "native": "asked natively, with the client's tools",
    "text": "asked by text (`claude update` brings a version that is asked natively, unless the settings say text)",
}
_HEADS: Final = ("model", "calls", "valid at first", "mended", "asked again", "failed", "unchecked")
_MODELS: Final = 20
"""Rows of the table."""
_NAME_CHARS: Final = 32


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one thing."""

    what: str
    verdict: Verdict
    words: str
    models: "tuple[Calls, ...]" = ()
    """What became of the calls of each; a table below the words."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "doctor",
        help="see whether what is set up here works",
        description="Look at settings, extras, weights, servers behind, the installed claude, and what a running "
        "gateway has counted; no model is asked. "
        "The exit status is 1 where something that is to be used does not work.",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="settings (~/.config/dragoman/config.toml)")
    command.add_argument("--claude", action="store_true", default=None, help="the installed claude is to be used")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Look, and tell."""
    findings = asyncio.run(_found(args.config, {"claude_cli.enabled": args.claude}))
    print(json.dumps(msgspec.to_builtins(findings), indent=2) if args.json else table(findings))
    return 1 if any(finding.verdict == "no" for finding in findings) else 0


def table(findings: list[Finding]) -> str:
    """All of them for people."""
    width = max(len(finding.what) for finding in findings)
    lines = []
    for found in findings:
        head = f"{found.what.ljust(width)}  {found.verdict.ljust(4)}  "
        lines.append(
            fill(found.words, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
        )
        lines += _rows(found.models)
    return "\n".join(lines)


def _rows(models: "Sequence[Calls]") -> list[str]:
    """The table of calls."""
    if not models:
        return []
    rows = [_HEADS, *map(_cells, models[:_MODELS])]
    name_chars, *widths = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [
        "  ".join([name.ljust(name_chars), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for name, *cells in rows
    ]
    more = [f"and {len(models) - _MODELS} more, in /metrics"] if len(models) > _MODELS else []
    return ["", *(f"  {line}" for line in [*lines, *more])]


def _cells(of: "Calls") -> tuple[str, ...]:
    name = of.model if of.model.isprintable() else repr(of.model)
    name = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
    share = "-" if of.share is None else f"{of.share:.1%}".replace("%", " %")
    return (name, str(of.calls), share, str(of.mended), str(of.asked_again), str(of.failed), str(of.unchecked))


async def _found(named: Path | None, flags: Mapping[str, object]) -> list[Finding]:
    findings = [Finding("dragoman", "ok", f"{__version__}, Python {platform.python_version()} at {sys.executable}")]
    try:
        path = serve.settings_path(named)
        config, origin = settings.load(path, os.environ, flags)
    except ConfigError as error:
        return [*findings, Finding("settings", "no", error.message), *await _claude(ClaudeCliConfig())]
    findings.append(Finding("settings", "ok", str(path) if path else f"none; they go to {settings.default_path()}"))
    findings += [Finding("settings", "note", words) for words in settings.unknown_variables(os.environ)]
    with_model = serve.has_embedded(config, origin)
    findings.append(_extras("server", *(("embedded",) if with_model else ())))
    if with_model:
        findings.append(_weights(config))
    looked = (_server(name, server) for name, server in config.servers.items())
    findings += [*await asyncio.gather(*looked), *await _claude(config.claude_cli)]
    return [*findings, *await _gateway(config.server)]


def _extras(*needed: str) -> Finding:
    """Which are there, and which is missing that is needed."""
    there = [extra for extra in _EXTRAS if not serve.missing_extras(extra)]
    others = [extra for extra in _EXTRAS if extra not in there]
    if missing := serve.missing_extras(*needed):
        return Finding("extras", "no", missing)
    words = ", ".join(there) or "none"
    return Finding("extras", "ok", f"{words}; not installed: {', '.join(others)}" if others else words)


def _weights(config: settings.Config) -> Finding:
    """Of the embedded model."""
    name = config.embedded.model or profiles.default().name
    try:
        serve.embedded_name(config.embedded)
        if serve.is_file(name) or weights.have(name):
            return Finding("weights", "ok", f"{name}: {weights.find(name)}")
    except DragomanError as error:
        return Finding("weights", "no", error.message)
    return Finding("weights", "note", f"{name} is not here yet; `dragoman serve` fetches it, or: dragoman pull {name}")


async def _server(name: str, config: HttpConfig) -> Finding:
    """Whether it answers, and takes the key."""
    what = f"server {name}"
    try:
        from dragoman.backends.probe.reach import connected, reached
        from dragoman.backends.probe.telling import Telling
    except ImportError:
        return Finding(what, "no", serve.missing_extras("server"))
    try:
        async with connected(config, os.environ) as connection:
            telling = Telling(connection, config.url)
            listed = await reached(connection, telling, config, os.environ)
            kind = await telling.kind()
    except DragomanError as error:
        return Finding(what, "no", error.message)
    models = config.models or listed
    if not models:
        return Finding(what, "no", f"{config.url} lists no model; load one there, or name them: servers.{name}.models")
    many = f"{len(models)} models" if len(models) > 1 else models[0]
    return Finding(what, "ok", f"{config.url} is {kind.title if kind else 'of no known kind'}, with {many}")


async def _gateway(config: settings.ServerConfig) -> list[Finding]:
    """What one that runs with these settings has counted; none need run."""
    if serve.missing_extras("server"):
        return []
    from dragoman.server.counted import counted, url

    try:
        told = await counted(config)
    except BackendError as error:
        return [Finding("gateway", "note", f"{error.message}; `dragoman serve` starts one")]
    except ConfigError as error:
        return [Finding("gateway", "note", error.message)]
    where = url(config)
    asked = f"{_number(told.requests, 'request')}, {told.failures} failed, {told.in_flight} being answered"
    words = f"{told.version} at {where}, up for {span(told.up_s)}: {asked}"
    if told.not_ready:
        words += f"; not ready: {', '.join(told.not_ready)}"
    many = _number(sum(of.calls for of in told.models), "tool call") if told.models else "no tool calls"
    return [
        Finding("gateway", "note" if told.not_ready else "ok", words),
        Finding("calls", "ok", f"{many} since then", told.models),
    ]


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def span(seconds: float) -> str:
    """`5 s`, `3 min`, `2 h`, `4 days`."""
    for unit, size_s in (("days", 2 * 86_400), ("h", 2 * 3600), ("min", 2 * 60)):
        if seconds >= size_s:
            return f"{seconds * 2 / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"


async def _claude(config: ClaudeCliConfig) -> list[Finding]:
    """The program, and its login; where it is not to be used, nothing is amiss."""
    try:
        from dragoman.backends.claude_cli import installed, login, told
    except ImportError:
        return [Finding("claude", "no", serve.missing_extras("server"))] if config.enabled else []
    amiss: Verdict = "no" if config.enabled else "note"
    try:
        found = await installed.find(config, os.environ)
    except ConfigError as error:
        return [Finding("claude", amiss, error.message)]
    usage = "" if config.enabled else "; `dragoman serve --claude` serves its models"
    program = Finding("claude", "ok", f"{found.name} at {found.path}, {_MODES[found.mode]}{usage}")
    status = await login.asked(found, config, os.environ)
    match status.there:
        case True:
            return [program, Finding("claude's login", "ok", status.how or "logged in")]
        case False:
            return [program, Finding("claude's login", amiss, told.LOGIN)]
        case None:
            words = f"claude {found.name} does not tell; run claude, and type /login where it asks for that"
            return [program, Finding("claude's login", "note", words)]
