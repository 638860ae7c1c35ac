"""`dragoman serve`: start the gateway."""

import argparse
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import profiles
from dragoman.backends import weights
from dragoman.cli.pull import Bar
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:  # what needs an extra is imported when it is used, so that the other commands work without
    from dragoman.backends.embedded import EmbeddedConfig
    from dragoman.server.config import Config


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    command = commands.add_parser(
        "serve",
        help="start the gateway",
        description="Serve the OpenAI and Anthropic APIs. Without any settings: the small embedded model on loopback.",
    )
    command.add_argument("--config", type=Path, metavar="FILE", help="settings (~/.config/dragoman/config.toml)")
    command.add_argument("--host", help="address to listen on")
    command.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    command.add_argument("--model", help="embedded model: a known name or a .gguf file")
    command.add_argument("--check", action="store_true", help="say what the settings are and where from, and end")
    command.add_argument("--log", choices=("json", "text", "debug"), default="json", help="how much and in what form")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop.

    Raises: ConfigError: the settings are wrong, or an extra is missing; the message has the line to type.
    """
    from dragoman.backends.embedded import Embedded
    from dragoman.gateway import Gateway
    from dragoman.server import config as settings

    named = args.config or os.environ.get("DRAGOMAN_CONFIG")
    path = Path(named) if named else settings.default_path() if settings.default_path().is_file() else None
    flags = {"server.host": args.host, "server.port": args.port, "embedded.model": args.model}
    config, origin = settings.load(path, os.environ, flags)
    if args.check:
        print(explained(config, origin))
        return 0
    _log_to_stderr(args.log)
    if not config.embedded.enabled:
        raise ConfigError("nothing to serve: embedded.enabled is false and no other backend is configured")
    from dragoman.server.run import run as serve

    backend = Embedded.of(config.embedded, _weights(config.embedded), _say)
    return serve(Gateway([backend], config.aliases), config.server, lambda url: _say(f"listening on {url}"))


def explained(config: "Config", origin: dict[str, str]) -> str:
    """Every setting with its value and where it comes from; keys masked."""
    from dragoman.server import config as settings

    lines = []
    for key, *_ in settings.documented():
        section, _, name = key.partition(".")
        value = getattr(getattr(config, section), name)
        shown = f"({len(value)} keys)" if key == "server.keys" else repr(value)
        lines.append(f"{key} = {shown}  [{origin.get(key, 'default')}]")
    lines += [f"aliases.{k} = {v!r}  [{origin.get(f'aliases.{k}', 'default')}]" for k, v in config.aliases.items()]
    return "\n".join([*lines, "settings are good"])


def _weights(config: "EmbeddedConfig") -> Path:
    """The weights of the configured model, fetched first where they are missing."""
    model = config.model or profiles.default().name
    is_file = model.endswith(".gguf") and not model.startswith("hf:")
    if is_file or not config.pull or weights.have(model):
        return weights.find(model)
    _say(f"fetching the weights of {model}, this once")
    bar = Bar(sys.stderr, time.monotonic)
    try:
        path = weights.pull(model, bar)
    finally:
        bar.close()
    if not config.model:
        _say("this small model is for trying things out; for agents: dragoman pull qwen2.5-coder-1.5b")
    return path


def _say(text: str) -> None:
    print(f"dragoman: {text}", file=sys.stderr, flush=True)


def _log_to_stderr(kind: str) -> None:
    form = "%(message)s" if kind == "json" else "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(stream=sys.stderr, format=form, level=logging.DEBUG if kind == "debug" else logging.INFO)
    for name in ("uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(logging.DEBUG if kind == "debug" else logging.WARNING)
