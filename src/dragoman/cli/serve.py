"""`dragoman serve`: start the gateway."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman import config as settings
from dragoman import dialects, extras
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.catalog import models
from dragoman.cli._progress_line import Line
from dragoman.cli._terminal_safe import printable
from dragoman.cli.completion import model_names, offering
from dragoman.cli.pull import fetched
from dragoman.core.backend import Backend
from dragoman.core.errors import ConfigError
from dragoman.gateway.compaction import Seal
from dragoman.gateway.gateway import Gateway, targets, unserved
from dragoman.gateway.response_store import Memory

_EXAMPLES: Final = """
    examples:
      dragoman serve                                       a small model, to try things out
      dragoman serve --model qwen2.5-coder-1.5b            a larger one, fit for agents
      dragoman serve --server http://127.0.0.1:1234/v1     the models of a server, such as LM Studio
      dragoman serve --claude                              the models of the installed claude

    exit status:
      0  it was told to stop, and has
      1  a backend did not come up
      2  the command or its settings are wrong, or the address is taken; standard error says what
"""


_NAMED: Final = 8
"""Models that are named at the start."""
_LARGE_BYTES: Final = 500_000_000
"""Weights that take a second or more to be read."""
LOG_LINE: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "serve",
        help="start the gateway",
        description="Serve OpenAI Chat Completions, OpenAI Responses and Anthropic Messages, streamed and whole, until "
        "SIGTERM or Ctrl-C. What is behind are the servers of the settings, the installed claude, or, where nothing "
        "is named, a small model of its own.",
        epilog=_EXAMPLES,
    )
    behind = command.add_argument_group("what is behind")
    behind.add_argument("--server", metavar="URL", help="the models of this server: http://127.0.0.1:1234/v1")
    behind.add_argument("--api", choices=dialects.names(), help="the API of --server (default: openai_chat)")
    behind.add_argument(
        "--claude", action="store_true", default=None, help="the models of the installed claude, by its own login"
    )
    model = behind.add_argument(
        "--model", metavar="NAME", help="an embedded model: a name or a .gguf file (default: smollm2-135m)"
    )
    offering(model, model_names)
    listens = command.add_argument_group("where it listens")
    listens.add_argument("--host", metavar="ADDRESS", help="the address (default: 127.0.0.1, this machine only)")
    listens.add_argument("--port", type=int, help="the port; 0 takes a free one (default: 8484)")
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="settings (default: ~/.config/dragoman/config.toml)"
    )
    command.add_argument("--check", action="store_true", help="say what the settings are and where from, and end")
    command.add_argument("--capture", metavar="DIR", help="keep each exchange in this folder (docs/debugging.md)")
    log = command.add_argument("--log", choices=("json", "text", "debug"), default="json")
    log.help = "the log on standard error: a line of JSON a request, text, or all that happens (default: json)"
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop.

    Raises: ConfigError: the settings are wrong, or an extra is missing; the message has the line to type.
    """
    flags = {"server.host": args.host, "server.port": args.port, "embedded.model": args.model}
    flags |= {**named_behind(args), "server.capture": args.capture}
    config, origin = settings.load(settings_path(args.config), os.environ, flags)
    for unknown in settings.unknown_variables(os.environ):
        say(unknown)
    if loose := settings.readable_secrets(settings_path(args.config), config):
        say(loose)
    others = _has_others(config)
    name = embedded_name(config.embedded) if has_embedded(config, origin) else ""
    for alias, target in ((alias, target) for alias, meant in config.aliases.items() for target in targets(meant)):
        if target != name and not others:
            raise unserved(alias, target, [name])
    missing = missing_extras("server", *(("embedded",) if name else ()))
    if args.check:
        _resolve(config.server)
        print(explained(config, origin))
        if missing:
            say(missing)
        else:
            _servers(config, measures=False)  # finds an API that there is not, and a key that is not set
            asyncio.run(asked_claude(config, say))
        return 0
    if missing:
        raise ConfigError(missing)
    _log_to_stderr(args.log)
    asyncio.run(asked_claude(config, say))
    from dragoman.server.run import run as serve

    made = gateway(config, bool(name), say)
    return serve(made, config.server, lambda url: announce(url, made, bool(config.server.keys)), say=say)


def announce(url: str, made: Gateway, has_keys: bool) -> None:
    """Report the address, and what to put into a client."""
    names = [model.id for model in made.models() if model.id not in model.aliases]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    key = "one of server.keys" if has_keys else "any"
    say(f"listening on {url}")
    say(f"OpenAI clients: base URL {url}/v1, API key: {key}")
    say(f"Anthropic clients: base URL {url} (without /v1), API key: {key}")
    say(f"models: {', '.join(names[:_NAMED])}{more}" if names else "models: none yet; the servers report none")
    header = "-H 'Authorization: Bearer KEY' " if has_keys else ""
    body = json.dumps({"model": names[0] if names else "MODEL", "messages": [{"role": "user", "content": "Hello"}]})
    say(f"try: curl {url}{dialects.get('openai_chat').path} {header}-d {shlex.quote(body)}")


def gateway(config: settings.Config, embedded: bool, say: Callable[[str], None]) -> Gateway:
    """The gateway of these settings, with the embedded model or without; `say` is told what takes time, or is missing.

    Raises: ConfigError: an API that there is not, a key that is not set, weights that are not here.
    """
    kept = config.memory
    memory = Memory(kept.replies, kept.size_bytes, kept.age_s)
    seal = Seal(kept.seal_key.encode() if kept.seal_key else _seal_key())
    return Gateway(backends(config, embedded=embedded, say=say), config.aliases, memory, config.guard, seal)


def _seal_key() -> bytes | None:
    """The key of this machine, made where there is none; None: it cannot be kept, so it is one of this process."""
    path = weights.home() / "seal.key"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), open(path, "xb", opener=_private) as made:
            made.write(secrets.token_bytes(32))
        return path.read_bytes() or None
    return None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def named_behind(args: argparse.Namespace) -> dict[str, object]:
    """The settings that `--server`, `--api` and `--claude` stand for.

    Raises: ConfigError: an API without the server that it is of.
    """
    if args.api and not args.server:
        raise ConfigError("--api is the API of a server behind; name that with --server URL")
    return {"servers.behind.url": args.server, "servers.behind.api": args.api, "claude_cli.enabled": args.claude}


def settings_path(named: Path | None) -> Path | None:
    """The settings' file: the one that is named, by the flag or the variable, else the usual one if it is there."""
    chosen = named or os.environ.get("DRAGOMAN_CONFIG")
    usual = settings.default_path()
    return Path(chosen) if chosen else usual if usual.is_file() else None


def _has_others(config: settings.Config) -> bool:
    return bool(config.servers) or config.claude_cli.enabled


def has_embedded(config: settings.Config, origin: Mapping[str, str]) -> bool:
    """Whether the embedded model is to be served: where nothing else is, or the settings name it."""
    if not _has_others(config):
        return True
    return config.embedded.enabled and any(key.startswith("embedded.") for key in origin)


def backends(
    config: settings.Config, *, embedded: bool, say: Callable[[str], None], measures: bool = True
) -> list[Backend]:
    """All that these settings name, in the order in which they are asked; the weights are fetched where they must be.

    `measures`: models of servers, behind their first answer. `say` is told what takes long.

    Raises: ConfigError: the settings are wrong. RemoteError: the weights cannot be had.
    """
    claude = _claude(config.claude_cli)
    return [*_servers(config, measures), *claude, *(_embedded(config.embedded, say) if embedded else ())]


def _servers(config: settings.Config, measures: bool) -> list[Backend]:
    """The servers behind, in the order of the file."""
    if not config.servers:
        return []
    from dragoman.backends.http.backend import Http

    return [
        Http(name, server, os.environ, may_probe=measures, may_recall=True) for name, server in config.servers.items()
    ]


def _is_ours(url: str, port: int) -> bool:
    try:
        named = urlsplit(url)
        return named.hostname in settings.LOOPBACK and named.port == port
    except ValueError:
        return False


async def asked_claude(config: settings.Config, say: Callable[[str], None]) -> None:
    """Where the installed claude is to be asked, ask it whether somebody is logged in; `say` is told if nobody is.

    Raises: ConfigError: it is not there, cannot be used, or would ask the gateway of these settings.
    """
    if not config.claude_cli.enabled:
        return
    if _is_ours(os.environ.get("ANTHROPIC_BASE_URL", ""), config.server.port):
        raise ConfigError(
            "claude would ask this very gateway, which would ask claude: unset ANTHROPIC_BASE_URL, which names it"
        )
    from dragoman.backends.claude_cli import auth_status

    with Line(sys.stderr).saying("asking claude whether somebody is logged in"):
        missing = await auth_status.missing(config.claude_cli, os.environ)
    if missing:
        say(missing)


def _claude(config: ClaudeCliConfig) -> tuple[Backend, ...]:
    if not config.enabled:
        return ()
    from dragoman.backends.claude_cli.backend import ClaudeCli

    return (ClaudeCli(config, os.environ),)


def _embedded(config: EmbeddedConfig, say: Callable[[str], None]) -> tuple[Backend]:
    from dragoman.backends.embedded.backend import Embedded

    return (Embedded.of(config, _weights(config), say),)


def explained(config: settings.Config, origin: dict[str, str]) -> str:
    """Every setting with its value and where it comes from, as TOML; keys are not shown."""
    lines = []
    for key, *_ in settings.documented():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        if key == "embedded.model":
            value = value or models.default().name
        hidden = key in settings.SECRET and value
        shown = f"# {key}: {len(value)} not shown" if hidden else f"{key} = {settings.toml(value)}"
        lines.append(f"{shown}  # {origin.get(key, 'default')}")
    for server, of in config.servers.items():
        for field, value in msgspec.structs.asdict(of).items():
            key = f"servers.{server}.{field}"
            unset = "not shown" if field == "key" and value else "not set" if value is None else ""
            shown = f"# {key}: {unset}" if unset else f"{key} = {settings.toml(value)}"
            lines.append(f"{shown}  # {origin.get(key, 'default')}")
    for alias, target in config.aliases.items():
        lines.append(f"aliases.{settings.toml(alias)} = {settings.toml(target)}  # {origin[f'aliases.{alias}']}")
    return "\n".join([*lines, "# settings are good"])


def embedded_name(config: EmbeddedConfig) -> str:
    """The name that the embedded model answers to.

    Raises: ConfigError: there is no such model, or not here and it may not be fetched.
    """
    if not config.enabled:
        raise ConfigError("nothing to serve: embedded.enabled is false and no other backend is configured")
    model = config.model or models.default().name
    file = is_file(model)
    path = weights.find(model) if file or not config.pull else weights.path(model)
    return path.stem if file or model.startswith("hf:") else models.get(model).name


def is_file(model: str) -> bool:
    """Whether this names a file of weights, not a known model."""
    return model.endswith(".gguf") and not model.startswith("hf:")


def _resolve(config: settings.ServerConfig) -> None:
    try:
        socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
    except OSError as e:
        why = (e.strerror or str(e)).lower()
        raise ConfigError(f"cannot listen on {config.host!r}: {why} - at server.host") from None


def missing_extras(*wanted: str, doing: str = "serving") -> str:
    """What to type for all that is missing, or nothing; nothing is imported for it."""
    names = extras.missing(*wanted)
    return f"{doing} needs more than is installed: {extras.to_type(*names)}" if names else ""


def want(*wanted: str, doing: str) -> None:
    """Refuse to go on without these extras.

    Raises: ConfigError: one is not here; the message has the line to type.
    """
    if missing := missing_extras(*wanted, doing=doing):
        raise ConfigError(missing)


def _weights(config: EmbeddedConfig) -> Path:
    """The weights of the configured model, fetched first where they are missing."""
    model = config.model or models.default().name
    if is_file(model) or not config.pull or weights.have(model):
        return weights.find(model, _checking(model))
    say(f"fetching the weights of {model}, this once")
    path = fetched(model)
    if not config.model:
        say("this small model is for trying things out; for agents: dragoman pull qwen2.5-coder-1.5b")
    return path


def _checking(model: str) -> weights.Progress:
    """Says once that large weights are being read, which takes a while."""
    said: list[str] = []

    def told(done: int, total: int, what: str) -> None:
        if not said and total - done >= _LARGE_BYTES:
            said.append(what)
            say(f"{what} the weights of {model}, which are new here or have changed")

    return told


def say(text: str) -> None:
    """Tell the user, not a program."""
    print(printable(f"dragoman: {text}"), file=sys.stderr, flush=True)


class ForPeople(logging.Formatter):
    """Lines that steer no terminal, whatever clients and servers have written into them."""

    def format(self, record: logging.LogRecord) -> str:
        """As any other, with escapes for what is no character to be seen."""
        return printable(super().format(record))


def _log_to_stderr(kind: str) -> None:
    written = logging.StreamHandler(sys.stderr)
    written.setFormatter(logging.Formatter("%(message)s") if kind == "json" else ForPeople(LOG_LINE))
    logging.basicConfig(handlers=[written], level=logging.DEBUG if kind == "debug" else logging.INFO)
    for name in ("uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if kind == "debug" else logging.WARNING)
