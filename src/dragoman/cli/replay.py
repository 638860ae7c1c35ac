"""`dragoman replay`: replays a captured exchange, and compares it stage by stage."""

import argparse
import asyncio
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman import __version__, compose
from dragoman import config as settings
from dragoman.api.advice import NOTHING
from dragoman.cli import parse
from dragoman.cli._common import (
    BASE_URL,
    CAPTURE_HELP,
    EMBEDDED_MODEL,
    EXPLAIN_HELP,
    add_config_flag,
    add_upstream_details,
    add_upstream_flag,
    check_claude_login,
    first_lines,
    get_weights,
    listed_models,
    print_status,
    require_extras,
    upstream_flags,
)
from dragoman.cli._terminal import one_line, printable
from dragoman.compose import embedded_weights
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway

if TYPE_CHECKING:
    from dragoman.server.capture.diff import StageDiff
    from dragoman.server.capture.explanation import ExplainedText
    from dragoman.server.capture.load import LoadedCapture

EXAMPLES = """
    examples:
      dragoman replay captures             the newest capture in this folder
      dragoman replay captures --explain   why text is a call or not
      dragoman replay bug.zip --chunking random --seed 7
      dragoman replay captures --model qwen2.5-coder-1.5b

    exit status:
      0  every stage equals the captured one
      1  a stage differs, or the model failed
      2  the capture does not exist, or the command or its settings are invalid
"""
_DOING: Final = "replaying"
SHOWN_CHARS = 200
"""Maximum length of a line of a difference."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "replay",
        help="replay a captured request and response (see serve --capture)",
        description="Replay a captured exchange without the model: translate the request again, and parse the captured "
        "model output again. For each stage (the parsed request, the upstream request, the events and the response), "
        "print whether the result equals the captured one. With --model or --upstream, send the request to a model "
        "instead.\n\n"
        "An exchange is a client's request, the resulting requests to the model, and the response. Capture exchanges "
        "with the option --capture DIR of `dragoman serve` or `dragoman run`.",
        epilog=EXAMPLES,
    )
    command.add_argument("capture", type=Path, metavar="CAPTURE", help=CAPTURE_HELP)
    command.add_argument("--explain", action="store_true", help=EXPLAIN_HELP)
    command.add_argument(
        "--chunking",
        choices=("recorded", "whole", "chars", "random"),
        default="recorded",
        metavar="HOW",
        help="how to split the model's raw text into chunks: recorded (as it arrived), whole, chars (single "
        "characters) or random; if the result depends on this, that is a bug in Dragoman (default: recorded)",
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random chunks (default: 0)")
    command.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="send the request to this model: a model of --upstream or of a server in the settings, or, without "
        f"--upstream, an embedded model, which Dragoman runs itself ({EMBEDDED_MODEL}; missing weights are downloaded)",
    )
    add_upstream_flag(
        command,
        f"send the request to the server {BASE_URL}; the model is --model, else the model that the request names",
    )
    add_upstream_details(command)
    add_config_flag(command, " for --model and --upstream")
    command.add_argument(
        "--json", action="store_true", help="print the comparison as JSON; cannot be combined with --explain"
    )
    command.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="store the replay as a capture in this folder"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replays the capture and prints the comparison; returns 1 if a stage differs.

    Raises:
        ConfigError: the capture or the backend does not exist.
        DragomanError: a backend did not start.
    """
    require_extras("server", doing=_DOING)
    from dragoman.server.capture.diff import compare
    from dragoman.server.capture.explanation import explain_texts
    from dragoman.server.capture.load import LoadedCapture, load
    from dragoman.server.capture.replay import LiveReplay, Replay
    from dragoman.server.capture.store import write

    name, files = load(args.capture)
    capture = LoadedCapture(name, files)
    asks = bool(args.model or upstream_flags(args)["upstreams.upstream.url"])
    if asks and args.chunking != "recorded":
        raise ConfigError("--chunking is for what was captured; leave out that or --model")
    if args.json and args.explain:
        raise ConfigError("--explain prints text; leave out that or --json")
    if any(
        capture.json(f"{n}/backend.json").get("kind") == "embedded" for n in range(1, capture.backend_call_count + 1)
    ):
        require_extras("embedded", doing=_DOING)
    replay = LiveReplay(capture, *_gateway(args)) if asks else Replay(capture, args.chunking, args.seed)
    now = LoadedCapture(name, asyncio.run(replay.answered()))
    if args.output:
        args.output.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(args.output / name, now.files)
    stages = list(compare(capture, now, rechunked=args.chunking != "recorded"))
    if args.json:
        print(json.dumps(_report(capture, stages), indent=2))
    else:
        _print_comparison(capture, stages)
    if args.explain:
        texts = list(explain_texts(now, replay.read_of if isinstance(replay, Replay) else {}))
        lines = [line for text in texts for line in _explained_lines(text)]
        print(printable("\n".join([*lines, *_client_events(now), "", *_advice_lines(texts)])))
    return 1 if any(stage.difference for stage in stages) else 0


def _report(capture: "LoadedCapture", stages: "Iterable[StageDiff]") -> dict[str, object]:
    compared = [{"stage": stage.name, "same": not stage.difference, "difference": stage.difference} for stage in stages]
    return {"capture": capture.name, "summary": _summary(capture), "notes": list(_notes(capture)), "stages": compared}


def _print_comparison(capture: "LoadedCapture", stages: "Iterable[StageDiff]") -> None:
    """Prints for each stage whether it is the same, and how it differs."""
    print(one_line(f"{capture.name}: {_summary(capture)}"))
    for note in _notes(capture):
        print(one_line(f"  ({note})"))
    for stage in stages:
        print(f"  {stage.name:<12}{'differs' if stage.difference else 'same'}")
        for line in first_lines(stage.difference):
            print(f"    {one_line(line[:SHOWN_CHARS])}{'…' * (len(line) > SHOWN_CHARS)}")


def _summary(capture: "LoadedCapture") -> str:
    """Returns a summary of the capture in one line."""
    log = capture.json("summary.json").get("log", {})
    calls = (capture.json(f"{n}/backend.json") for n in range(1, capture.backend_call_count + 1))
    modes = [" ".join([one.get("backend", ""), *filter(None, one.get("model_mode", {}).values())][:3]) for one in calls]
    outcome = log.get("error") or log.get("finish") or log.get("status")
    return f"{log.get('path', '')} by {', '.join(dict.fromkeys(modes)) or 'no backend'}: {outcome}"


def _notes(capture: "LoadedCapture") -> Iterator[str]:
    """Yields notes about what may cause differences that are not defects."""
    summary = capture.json("summary.json")
    if (then := summary.get("dragoman", __version__)) != __version__:
        yield f"captured by dragoman {then}; this is {__version__}"
    if summary.get("is_cut"):
        yield "it was too large to be stored completely"


def _gateway(args: argparse.Namespace) -> tuple[Gateway, str]:
    """Returns a gateway with the backends of the settings, and the name of the model to use; "": that of the request.

    Raises: ConfigError: the settings are wrong, or an extra is missing.
    """
    flags = upstream_flags(args)
    config, origin = settings.load(compose.settings_path(args.config), os.environ, flags)
    is_own = not args.upstream and embedded_weights.is_embedded_model(args.model or "", config.embedded)
    if is_own and not _has_model(config, args.model):
        flags["embedded.model"] = args.model
        config, origin = settings.load(compose.settings_path(args.config), os.environ, flags)
    embedded = embedded_weights.embedded_model_name(config.embedded) if compose.serves_embedded(config, origin) else ""
    if embedded:
        require_extras("embedded", doing=_DOING)
    asyncio.run(check_claude_login(config, print_status))
    gateway = compose.build_gateway(config, bool(embedded), print_status, get_weights)
    return gateway, embedded if "embedded.model" in flags and embedded else args.model or ""


def _has_model(config: settings.Config, model: str) -> bool:
    """Whether an alias of the settings or a server in them has this model; a server without `models` is asked."""

    async def lists() -> list[tuple[str, ...] | None]:
        return await asyncio.gather(*map(listed_models, config.upstreams.values()))

    listed = zip(config.upstreams, asyncio.run(lists()), strict=True)
    names = {name for server, models in listed for each in models or () for name in (each, f"{server}/{each}")}
    return model in config.model_aliases or model in names


def _explained_lines(text: "ExplainedText") -> list[str]:
    """Returns how a text was read, and a line for each of its pieces."""
    return [f"\n{text.title}: {one_line(text.reader)}", *(parse.format_spans(text.spans) if text.text else ["(none)"])]


def _advice_lines(texts: "list[ExplainedText]") -> Iterator[str]:
    """Yields what to change, one line for each text."""
    if not texts:
        yield f"{NOTHING}: the model wrote no text"
    for text in texts:
        yield parse.wrap_advice(f"{text.title}: {text.advice}" if len(texts) > 1 else text.advice)


def _client_events(now: "LoadedCapture") -> Iterator[str]:
    """Yields the events for the client, one line each."""
    from dragoman.server.capture.diff import join_events

    if events := join_events(now.lines("events.jsonl")):
        yield "\nwhat the client received, after validation:"
    for event in events:
        kind = event.pop("event")
        fields = " ".join(f"{name}={value!r}" for name, value in event.items())
        yield f"{one_line(kind):<19}{one_line(fields[:SHOWN_CHARS])}{'…' * (len(fields) > SHOWN_CHARS)}"
