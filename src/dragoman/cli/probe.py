"""`dragoman probe`: finds out what an upstream server supports, and which tool mode suits it best."""

import argparse
import asyncio
import json
import logging
import os
import sys
from textwrap import fill
from typing import TYPE_CHECKING, Final

import msgspec

from dragoman import dialects, extras
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import servers
from dragoman.cli._common import add_api_key_flag
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.completion import all_model_names, complete_with
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.backends.probe.report import ProbeReport

_MARKS: Final = {"yes": "yes", "partly": "partly", "no": "no", "unknown": "-"}
_WIDTH: Final = 100
_EXAMPLES: Final = """
    examples:
      dragoman probe       list the servers on this machine, and their models
      dragoman probe http://127.0.0.1:1234/v1 --model qwen3-8b
      dragoman probe https://models.example/v1 --model m --api-key-env MODELS_KEY

    exit status:
      0  the server was probed, whatever it supports
      1  the server does not respond; without a URL, no server runs on this machine
      2  the command or the API key is wrong, or the server lists several models: name one with --model
"""
_LISTED_AT_MOST: Final = 5


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "probe",
        help="find out what a model server supports",
        description="Send about thirty short requests to a model server, and print what it supports and the settings "
        "for it. This takes about a minute. Without a URL, list the servers that run on this machine.\n\n"
        "The result is stored. The gateway uses it for a server whose setting tool_mode is auto (the default). "
        "tool_mode is how tool calls work: native (by the server), parse (Dragoman parses the calls), or prompt "
        "(Dragoman also describes the tools in the prompt).",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="base URL of the server, such as http://127.0.0.1:1234/v1; without it, list the servers on this machine",
    )
    model = command.add_argument(
        "-m",
        "--model",
        default="",
        metavar="NAME",
        help="a model of the server (default: the only model that the server lists)",
    )
    complete_with(model, all_model_names)
    command.add_argument(
        "--api",
        choices=dialects.names(),
        metavar="API",
        help="API of the server: %(choices)s (default: the API of --provider, else openai_chat)",
    )
    provider = command.add_argument(
        "--provider",
        default="",
        metavar="NAME",
        help="software or service of the server: anthropic, dragoman, exo, llama_cpp, lm_studio, mlx_lm, mlx_textgen, "
        "ollama, openai, openrouter, sglang, tgi, vllm, vllm_mlx (default: detected)",
    )
    complete_with(provider, lambda: [each.name for each in servers.providers()])
    add_api_key_flag(command, "the server")
    command.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="time limit for all requests after the first together (default: 60); the first may take three minutes, as "
        "the server may have to load the model",
    )
    command.add_argument(
        "--tokens",
        type=int,
        default=64,
        metavar="N",
        help="maximum output tokens of each request (default: 64); reasoning models need more",
    )
    command.add_argument(
        "--json", action="store_true", help="print the report as JSON; without a URL, print the servers as JSON"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Probes the server, and prints the report.

    Raises:
        ConfigError: the URL, the key or the model is missing or wrong.
        RemoteError: the server does not respond.
    """
    try:
        from dragoman.backends.probe import evidence, probe
        from dragoman.backends.probe.cache import store
    except ImportError as error:
        raise ConfigError(f"asking servers needs more than is installed: {extras.install_command('server')}") from error
    if args.url is None:
        return _list(args.json)
    logging.getLogger("dragoman").addHandler(logging.NullHandler())  # failures are in the table
    config = HttpConfig(url=args.url, provider=args.provider, api_key_env=args.api_key_env)
    if args.provider:
        config = msgspec.structs.replace(config, api=servers.get(args.provider).api)
    if args.api:
        config = msgspec.structs.replace(config, api=args.api)
    line = ProgressLine(sys.stderr)
    with line.showing("asking what it is"):
        report = asyncio.run(
            probe(
                config,
                os.environ,
                args.model,
                within_s=args.timeout,
                tokens=args.tokens,
                report_progress=lambda what: line.print(f"measuring: {what}"),
            )
        )
    store(config, report.model, report.provider, report.fingerprint, report.choice)  # used by tool mode auto
    evidence.store_report(config, report)
    print(json.dumps(msgspec.to_builtins(report), indent=2) if args.json else printable(format_report(report, config)))
    return 0


def _list(as_json: bool) -> int:
    """Prints the servers that run on this machine."""
    from dragoman.backends.probe.discover import discover_servers

    servers = asyncio.run(discover_servers(os.environ))
    if as_json:
        rows = [
            {
                "url": url,
                "provider": provider.name if provider else "",
                "title": provider.title if provider else "",
                "models": models,
            }
            for url, provider, models in servers
        ]
        print(json.dumps(rows, indent=2))
    for near in () if as_json else servers:
        listed = near.models if len(near.models) <= _LISTED_AT_MOST else (*near.models[:_LISTED_AT_MOST], "…")
        title = near.provider.title if near.provider else "an unknown provider"
        print(printable(f"{near.url}  {title}  {', '.join(listed) or 'no model'}"))
    if not servers:
        print("found no server on the usual ports of this machine; choose one: dragoman probe URL", file=sys.stderr)
        return 1
    return 0


def format_report(report: "ProbeReport", config: HttpConfig) -> str:
    """Returns the report as text."""
    from dragoman.backends.probe.settings_table import settings_table

    version = f" {report.version}" if report.version else ""
    lines = [
        f"{report.url} is {report.title}{version}; asked: {report.model}, by {report.api}, in {report.seconds} s",
        "",
    ]
    width = max(len(finding.what) for finding in report.findings)
    for finding in report.findings:
        head = f"{finding.what.ljust(width)}  {_MARKS[finding.verdict].ljust(6)}  "
        lines.append(fill(finding.text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
    quirks = servers.get(report.provider).quirks if report.provider else ()
    lines += ["", f"Known of {report.title}:"] if quirks else []
    lines += [
        fill(f"{quirk.description} ({quirk.source})", _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for quirk in quirks
    ]
    choice = report.choice
    lines += [
        "",
        fill(f"Best asked in tool mode {choice.tool_mode}: {choice.why}.", _WIDTH),
        "",
        settings_table(report, config.api_key_env),
    ]
    return "\n".join(lines)
