"""The real Claude Code on a local model, started twice: the time to its first token without and with a saved prefix.

    python -m bench.warm_start [--model NAME] [--context-window N] [--trim TIER] [--turns N]

Each start is a gateway and an engine of its own. The second one continues with turns of the conversation, between which
come requests of a subagent and for titles, with prompts of their own, and reports which share of the conversation's
tokens the engine did not read again. All counts are llama.cpp's own. The first start takes minutes.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from bench import claude_code, offline
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.config.server import ServerConfig
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.messages import Message, Request, Role, Text
from dragoman.gateway.gateway import Gateway
from dragoman.server import run as server

LIMITS = {"API_TIMEOUT_MS": "7200000", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "16"}
FLAGS = ["--output-format", "stream-json", "--verbose", "--max-turns", "1"]
TITLE = "Write a short title of at most five words for this conversation. Answer with the title only."
SUBAGENT = " ".join(f"Rule {n} of a search: look at folder {n} and name the files in it." for n in range(30))


@dataclass
class MeasuredCompletion:
    """What the engine counted for one completion."""

    name: str
    tokens: int = 0
    cached: int = 0
    first_token_s: float = 0.0


class CompletionMeter:
    """An engine that measures its completions."""

    def __init__(self, engine: LlamaProcess) -> None:
        self._engine = engine
        self.name = "Claude Code"
        self.completions: list[MeasuredCompletion] = []

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Generates with the engine."""
        measured, began_s = MeasuredCompletion(self.name), time.monotonic()
        self.completions.append(measured)
        async with aclosing(self._engine.complete(body, admitted=admitted, slot=slot)) as outputs:
            async for output in outputs:
                match output:
                    case Progress(total):
                        measured.tokens = total
                    case TokenText() if not measured.first_token_s:
                        measured.first_token_s = time.monotonic() - began_s
                    case Done(_, _, cached):
                        measured.cached = cached
                yield output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def ask(url: str, model: str, folder: Path) -> claude_code.Run:
    """Runs Claude Code, with all its tools, in the folder until it ends; its home is next to the folder."""
    home = folder.parent / "claude"  # the same at each start, as it is part of the prompt
    home.mkdir(exist_ok=True)
    env = offline.environment(home, ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="none", **LIMITS, **claude_code.QUIET)
    command = [str(offline.claude_code()), "-p", "Say hello.", "--model", model, *FLAGS]
    result = subprocess.run(
        command, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=7200
    )
    return claude_code.Run(
        [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")], result.stderr
    )


def serve(model: EmbeddedModel, name: str, folder: Path) -> list[Request]:
    """Runs a gateway, and Claude Code as its client; returns the requests when Claude Code has ended."""
    requests: list[Request] = []
    generate = model.generate

    def generate_and_record(request: Request, context: ExchangeContext) -> EventStream:
        requests.append(request)
        return generate(request, context)

    model.generate = generate_and_record  # type: ignore[method-assign]
    config = ServerConfig(port=0)

    def run_client(url: str) -> None:
        try:
            ask(url, name, folder)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # ends the gateway gracefully

    server.run(Gateway([model]), config, lambda url: threading.Thread(target=run_client, args=(url,)).start())
    return requests


async def converse(model: EmbeddedModel, meter: CompletionMeter, request: Request, turns: int) -> None:
    """Continues a conversation, with other requests between its turns.

    Args:
        model: the model, which is started and closed here.
        meter: its engine.
        request: that of Claude Code.
        turns: number of turns.
    """
    await model.start()
    messages = request.messages
    search = replace(request, tools=request.tools[:1])
    try:
        for turn in range(turns):
            messages_of_title = (_message("system", TITLE), _message("user", f"Talk about step {turn}."))
            await _send(model, meter, "title", replace(request, tools=(), messages=messages_of_title))
            messages_of_search = (_message("system", SUBAGENT), _message("user", f"Search for step {turn}."))
            await _send(model, meter, "subagent", replace(search, messages=messages_of_search))
            answered = _message("assistant", f"I looked at step {turn} and found that file {turn} is fine.")
            messages = (*messages, answered, _message("user", f"Go on with step {turn + 1}."))
            await _send(model, meter, "turn", replace(request, messages=messages))
    finally:
        await model.close()


def _message(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


async def _send(model: EmbeddedModel, meter: CompletionMeter, name: str, request: Request) -> None:
    meter.name = name
    request = replace(request, max_tokens=8)
    async with aclosing(model.generate(request, ExchangeContext(name, 0, iter("abcdefgh").__next__))) as batches:
        async for _ in batches:
            pass


def run_once(args: argparse.Namespace) -> None:
    """Runs one start, and prints its completions and the state of the saved prefixes as JSON."""
    path = weights.find_weights(args.model)
    os.environ["DRAGOMAN_HOME"] = args.home
    config = EmbeddedConfig(model=args.model, context_window=args.context_window, prompt_trim=args.trim)
    model = EmbeddedModel.from_config(config, path, _say)
    meter = CompletionMeter(model.engine)
    model.engine = cast(LlamaProcess, meter)
    requests = serve(model, args.model, Path(args.folder))
    prefixes = model.health()["prefixes"]
    if args.turns:
        resumed = EmbeddedModel.from_config(config, path, _say)
        completions = meter.completions
        meter = CompletionMeter(resumed.engine)
        meter.completions = completions
        resumed.engine = cast(LlamaProcess, meter)
        asyncio.run(converse(resumed, meter, requests[0], args.turns))
    print(json.dumps({"completions": [asdict(each) for each in meter.completions], "prefixes": prefixes}))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def start(args: argparse.Namespace, home: str, folder: str, turns: int) -> list[MeasuredCompletion]:
    """Runs one start in a process of its own, and returns its completions.

    Args:
        args: the options of the command.
        home: folder of the saved prefixes.
        folder: working folder of Claude Code.
        turns: turns that follow.
    """
    own = ["--once", "--home", home, "--folder", folder, "--turns", str(turns)]
    options = ["--model", args.model, "--context-window", str(args.context_window), "--trim", args.trim]
    command = [*offline.separate_network(), sys.executable, "-m", "bench.warm_start", *own, *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(result.stdout.splitlines()[-1])
    _say(json.dumps(found))
    return [MeasuredCompletion(**each) for each in found["completions"]]


def report(cold: Sequence[MeasuredCompletion], warm: Sequence[MeasuredCompletion]) -> str:
    """Returns the results as text."""
    lines = [_row("first start", cold[0]), _row("second start", warm[0])]
    for name in ("turn", "subagent", "title"):
        if rows := [each for each in warm if each.name == name]:
            tokens, cached = sum(each.tokens for each in rows), sum(each.cached for each in rows)
            slowest = max(each.first_token_s for each in rows)
            share = f"{cached} of {tokens} prompt tokens cached ({cached / tokens:.1%})"
            lines.append(f"{len(rows)} x {name}: {share}, first token after {slowest:.1f} s at most")
    return "\n".join(lines)


def _row(name: str, completion: MeasuredCompletion) -> str:
    counts = f"{completion.tokens} prompt tokens, {completion.cached} of them cached"
    return f"{name}: first token after {completion.first_token_s:.1f} s; {counts}"


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.warm_start", description=__doc__)
    parser.add_argument("--model", default=claude_code.MODEL, help=f"a known model (default: {claude_code.MODEL})")
    parser.add_argument("--context-window", type=int, default=16384, help="default: 16384")
    parser.add_argument("--trim", default="off", help="tier of prompt trimming (default: off)")
    parser.add_argument("--turns", type=int, default=20, help="turns after the second start (default: 20)")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--home", default="", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        offline.loopback_up()
        run_once(args)
        return
    with tempfile.TemporaryDirectory(prefix="project-") as name:
        folder, home = Path(name) / "project", Path(name) / "home"
        folder.mkdir()
        home.mkdir()
        (folder / "notes.txt").write_text(claude_code.NOTES + "\n")
        cold = start(args, str(home), str(folder.resolve()), 0)
        warm = start(args, str(home), str(folder.resolve()), args.turns)
    print(report(cold, warm))


if __name__ == "__main__":
    main()
