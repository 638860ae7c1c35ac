"""`dragoman serve`: starts the gateway."""

import argparse
import asyncio
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from dragoman import compose, dialects
from dragoman import config as settings
from dragoman.backends.embedded.local.files import find_model
from dragoman.cli._common import (
    CAPTURE_DIR_HELP,
    EMBEDDED_MODEL,
    add_config_flag,
    add_server_flags,
    check_claude_login,
    format_settings,
    missing_extras_message,
    print_status,
    upstream_flags,
)
from dragoman.cli._terminal import exit_status
from dragoman.cli.completion import complete_with, model_names
from dragoman.cli.pull import download_weights
from dragoman.compose import claude_login, embedded_weights
from dragoman.compose.costs import describe_vendor_prices
from dragoman.compose.plugin_parts import check_plugins
from dragoman.compose.records import record_writer
from dragoman.compose.reload import rebuild_gateway
from dragoman.config.checks import requires_keys
from dragoman.config.effective import setting_rows
from dragoman.config.keys_file import writable_by_others
from dragoman.config.position import error_line, with_line
from dragoman.config.server import ServerConfig
from dragoman.console.install import serves_console
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import alias_targets, unknown_alias_target
from dragoman.server.paths import CONSOLE
from dragoman.server.reload.control import ConfigSource, read_stamp
from dragoman.tracing import environment

if TYPE_CHECKING:
    from dragoman.cli._log_format import LogFormat

_EXAMPLES: Final = """
    examples:
      dragoman serve                                       a small model
      dragoman serve --model qwen2.5-coder-1.5b            a model for agents
      dragoman serve --upstream http://127.0.0.1:1234/v1   LM Studio's models
      dragoman serve --claude-cli                          Claude Code's models

    exit status:
      0  the gateway was stopped by Ctrl-C or SIGTERM
      1  a backend did not start, or a download failed
      2  the command or its settings are invalid, or the address is in use
"""


_MAX_LISTED: Final = 8
"""Maximum number of models that are listed at the start."""
_MAX_PORT: Final = 65535


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "serve",
        help="start the gateway",
        description="Serve three APIs: OpenAI Chat Completions, OpenAI Responses and Anthropic Messages. Print the "
        "base URLs for clients, and run until Ctrl-C or SIGTERM. Clients need an API key only if the setting "
        "server.api_keys is set.\n\n"
        "Choose the backends, which run the models: upstream servers (any server with an OpenAI or Anthropic API), "
        "Claude Code, or an embedded model, which Dragoman runs itself with llama.cpp. They can be combined. Without "
        "settings and options, the backend is a small embedded model, even if a model server runs on this machine "
        "(`dragoman run` uses such a server). The first start downloads the model (98 MB).",
        epilog=_EXAMPLES,
    )
    group = command.add_argument_group("backends")
    add_server_flags(group)
    model = group.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help=f"add an embedded model: {EMBEDDED_MODEL}; missing weights are downloaded (default: smollm2-135m, if "
        "there is no other backend)",
    )
    complete_with(model, model_names)
    _add_address(command)
    add_config_flag(command)
    command.add_argument(
        "--print-config",
        action="store_true",
        help="check the settings, print those that are not at their default, and exit",
    )
    command.add_argument(
        "--all", action="store_true", help="with --print-config: print all settings, including defaults"
    )
    command.add_argument("--json", action="store_true", help="with --print-config: print the settings as JSON")
    command.add_argument("--print-schema", action="store_true", help="print the JSON Schema of the settings, and exit")
    command.add_argument("--capture", metavar="DIR", help=CAPTURE_DIR_HELP)
    command.add_argument(
        "--log-format",
        choices=("json", "text"),
        help="format of the log on standard error: a JSON object or a line of text for each request "
        "(default: text if standard error is a terminal or --log-level is debug, else json)",
    )
    command.add_argument(
        "--log-level",
        choices=("info", "debug"),
        default="info",
        help="debug: also log each step of each request (default: info)",
    )
    command.add_argument(
        "-v", "--verbose", action="store_const", const="debug", dest="log_level", help="same as --log-level debug"
    )
    command.set_defaults(run=run)


def _add_address(command: argparse.ArgumentParser) -> None:
    listens = command.add_argument_group("address")
    listens.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1, this machine only); an address that other machines can reach "
        "requires the setting server.api_keys",
    )
    listens.add_argument("-p", "--port", type=_port, help="port to listen on, or 0 for any free port (default: 8484)")
    listens.add_argument(
        "--workers", metavar="N", help="number of gateway processes, one for each CPU core that is free (default: 1)"
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= _MAX_PORT):
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {_MAX_PORT}, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serves until the process is stopped.

    Raises: ConfigError: the settings are wrong, or an extra is missing; the message has the command that installs it.
    """
    if (args.all or args.json) and not args.print_config:
        raise ConfigError("--all and --json apply to --print-config; add it, or leave them out")
    if args.print_schema:
        print(json.dumps(settings.json_schema(), indent=2))
        return 0
    flags = {"server.host": args.host, "server.port": args.port, "embedded.model": args.model}
    flags |= {"server.workers": args.workers}
    flags |= {**upstream_flags(args), "capture.dir": args.capture}
    path = partial(compose.settings_path, args.config)
    stamp = read_stamp(path())
    config, origin = _load(path(), flags)
    loose = settings.readable_secrets(path(), config)
    problems = [*settings.unknown_variables(os.environ), *([loose] if loose else []), *_check_keys(config, origin)]
    problems += filter(None, [environment.missing_message(os.environ)])
    if config.server.workers > 1 and sys.platform == "win32":
        raise ConfigError(
            f"expected server.workers of 1 on Windows, got {config.server.workers}: its processes cannot share the "
            "sockets that several workers need; start several gateways at different ports instead"
        )
    name = embedded_weights.embedded_model_name(config.embedded) if compose.serves_embedded(config, origin) else ""
    others = compose.has_upstreams(config)
    for alias, targets in config.model_aliases.items():
        for target in alias_targets(targets):
            if not others and target != name and not find_model(config.embedded, target):
                raise unknown_alias_target(alias, target, [name])
    missing = missing_extras_message("server", *(("embedded",) if name else ()))
    if args.print_config:
        for problem in problems:
            print_status(problem)
        _print_settings(args, config, origin, missing)
        return 0
    if missing:
        raise ConfigError(missing)
    log_format: LogFormat = args.log_format or ("text" if args.log_level == "debug" or sys.stderr.isatty() else "json")
    source = ConfigSource(path, os.environ, flags, bool(name), stamp)
    return _serve(config, source, problems, log_format, debug=args.log_level == "debug")


def _load(path: Path | None, flags: Mapping[str, object]) -> tuple[settings.Config, dict[str, str]]:
    """Returns the settings, and where each comes from.

    Raises: ConfigError: a setting is wrong; the message has its line, if that is known.
    """
    try:
        return settings.load(path, os.environ, flags)
    except ConfigError as error:
        raise ConfigError(with_line(error.message, str(path), error_line(error, path))) from None


def _check_keys(config: settings.Config, origin: dict[str, str]) -> list[str]:
    """Checks the keys, and returns what the user should change.

    Raises: ConfigError: the keys file is wrong, or is named but missing.
    """
    from dragoman.server.keys.ring import KeyRing

    path = Path(config.server.keys_path)
    if "server.keys_path" in origin and not path.exists():
        raise ConfigError(
            f"expected a keys file, got none: `dragoman keys create NAME` creates {path} - at server.keys_path, "
            f"from {origin['server.keys_path']}"
        )
    KeyRing.from_config(config)
    return [problem] if (problem := writable_by_others(path)) else []


def _print_settings(args: argparse.Namespace, config: settings.Config, origin: dict[str, str], missing: str) -> None:
    _resolve(config.server)
    if not missing:
        compose.vendor_tools(config)
        record_writer(config)  # checks the URL
        compose.upstream_backends(config, probe=False)  # checks that the APIs exist and the keys are set
        check_plugins(config)
    if args.json:
        print(json.dumps(list(setting_rows(config, origin, everything=args.all)), indent=2))
    else:
        print(format_settings(config, origin, everything=args.all))
    if prices := describe_vendor_prices(config):
        print_status(prices)
    if missing:
        print_status(missing)
    else:
        asyncio.run(check_claude_login(config, print_status))


def _serve(
    config: settings.Config, source: ConfigSource, problems: Sequence[str], log_format: "LogFormat", *, debug: bool
) -> int:
    """Serves with a log on standard error, of which in JSON each line is a record, also the last error."""
    from dragoman.cli import _log_format  # imports structlog

    handler = logging.StreamHandler(sys.stderr)
    _log_format.configure(log_format, handler, debug=debug)
    if log_format == "text":
        for problem in problems:
            print_status(problem)
        asyncio.run(check_claude_login(config, print_status))
        get_weights = partial(embedded_weights.get_weights, report=print_status, download=download_weights)
        return _serve_until_stopped(config, source, print_status, get_weights, handler, debug=debug)
    log = logging.getLogger("dragoman.serve")
    for problem in problems:
        log.warning("%s", problem)

    def report(text: str) -> None:
        log.info("%s", text)

    try:
        asyncio.run(claude_login.check_claude_login(config, lambda text: log.warning("%s", text)))
        get_weights = partial(
            embedded_weights.get_weights, report=report, download=partial(download_weights, log=report)
        )
        return _serve_until_stopped(config, source, report, get_weights, handler, debug=debug)
    except DragomanError as error:
        log.error("%s", error)
        return exit_status(error)


def _serve_until_stopped(
    config: settings.Config,
    source: ConfigSource,
    report: Callable[[str], None],
    get_weights: compose.GetWeights,
    handler: "logging.StreamHandler[TextIO]",
    *,
    debug: bool,
) -> int:
    embedded = source.serves_embedded
    keys = "" if not requires_keys(config) else "`dragoman keys list`" if _has_named(config) else "server.api_keys"

    console = serves_console(config)

    def show(url: str, names: Sequence[str]) -> None:
        announce(url, names, keys, report)
        if console:
            report(f"console: {url}{CONSOLE}")

    if config.server.workers > 1:
        from dragoman.cli._workers import supervisor
        from dragoman.cli._workers.plan import Plan

        weights = str(get_weights(config.embedded)) if embedded else ""
        log_format: LogFormat = "text" if report is print_status else "json"
        plan = Plan(
            config=config,
            embedded=embedded,
            log_format=log_format,
            debug=debug,
            weights=weights,
            settings_path=str(source.path() or ""),
            flags={key: value for key, value in source.flags.items() if value is not None},
        )
        return supervisor.run(plan, source, show, report, handler)
    from dragoman.compose.limits import usage_limits
    from dragoman.console.install import console_installer
    from dragoman.server.keys.ring import KeyRing
    from dragoman.server.reload.process import Reloadable
    from dragoman.server.run import run as serve

    limits = usage_limits(config, None)
    install_console = console_installer(config, source, limits)
    gateway = compose.build_gateway(config, embedded, report, get_weights)
    return serve(
        gateway,
        config.server,
        lambda url: show(url, model_ids(gateway)),
        print_status=report,
        capture=config.capture,
        reloadable=Reloadable(source, config, rebuild_gateway),
        keys=KeyRing.from_config(config),
        records=record_writer(config),
        limits=limits,
        set_up=install_console,
    )


def model_ids(gateway: Gateway) -> list[str]:
    """Returns the own names of all models."""
    return [model.id for model in gateway.models() if model.id not in model.aliases]


def _has_named(config: settings.Config) -> bool:
    return bool(config.keys) or Path(config.server.keys_path).exists()


def announce(url: str, names: Sequence[str], keys: str, print_status: Callable[[str], None]) -> None:
    """Reports the URL, and what to configure in a client.

    Args:
        url: where the gateway listens.
        names: the models.
        keys: what has the API keys; empty: requests need none.
        print_status: receives each line.
    """
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    key = f"one of {keys}" if keys else "any"
    print_status(f"listening on {url}")
    print_status(f"OpenAI clients: base URL {url}/v1, API key: {key}")
    print_status(f"Anthropic clients: base URL {url} (without /v1), API key: {key}")
    print_status(
        f"models: {', '.join(names[:_MAX_LISTED])}{more}" if names else "models: none yet; the servers report none"
    )
    header = "-H 'Authorization: Bearer KEY' " if keys else ""
    body = json.dumps({"model": names[0] if names else "MODEL", "messages": [{"role": "user", "content": "Hello"}]})
    print_status(f"try: curl {url}{dialects.get('openai_chat').path} {header}-d {shlex.quote(body)}")


def _resolve(config: ServerConfig) -> None:
    try:
        socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
    except OSError as e:
        why = (e.strerror or str(e)).lower()
        raise ConfigError(f"cannot listen on {config.host!r}: {why} - at server.host") from None
