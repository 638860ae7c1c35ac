"""How many of forty plain requests to a small model become tool calls.

    python -m bench.forty [--model NAME] [--record]

The real model runs through the embedded backend and the reader, as in a gateway: tools are offered, the choice is free,
the temperature is 0. The report also contains how often the model's text has the tag of its own template, and how many
calls a parser that requires the tag finds. `--record` stores the raw texts in tests/data/backends/forty/ for a test.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import re
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import Output, TokenText
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.catalog import models
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import complete_calls
from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import Message, Request, Sampling, Text, Tool, ToolCall, ToolChoice
from dragoman.gateway.gateway import Gateway
from dragoman.parsing.reader_options import ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader

FOLDER = Path(__file__).parent.parent / "tests" / "data" / "backends" / "forty"
MODEL = "qwen2.5-coder-1.5b"
TAG = "<tool_call>"
REPLY_TOKENS = 256


@dataclass(frozen=True)
class Prompt:
    """One request; `tool` is the suitable one or empty, `holds` the required content of its arguments."""

    ask: str
    tool: str = ""
    holds: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PromptResult:
    """The result of a prompt."""

    prompt: Prompt
    raw: str
    """The model's text."""
    calls: Sequence[ToolCall]
    """The reader's events."""


@dataclass
class Count:
    """Number of completions to which each applies."""

    prompts: int = 0
    tagged: int = 0
    strict: int = 0
    called: int = 0
    named: int = 0
    valid: int = 0
    right: int = 0

    def lines(self) -> list[str]:
        """Returns the numbers as readable text."""
        return [
            f"{self.tagged:3} of {self.prompts}  replies hold {TAG}, the tag that the model's template asks for",
            f"{self.strict:3} of {self.prompts}  become tool calls where the tag is insisted on",
            f"{self.called:3} of {self.prompts}  become tool calls here",
            f"{self.named:3} of {self.prompts}  name the right tool",
            f"{self.valid:3} of {self.prompts}  … with arguments that fit its schema",
            f"{self.right:3} of {self.prompts}  … and say what was asked for",
        ]


def tools() -> list[Tool]:
    """Returns the tools that each prompt offers."""
    return [Tool(t["name"], t["description"], json.dumps(t["parameters"])) for t in _data()["tools"]]


def prompts() -> list[Prompt]:
    """Returns the forty with a suitable tool, then those without."""
    return [Prompt(**p) for p in _data()["prompts"]] + [Prompt(ask) for ask in _data()["chat"]]


def required_recording() -> dict[str, list[str]]:
    """Returns the model's recorded texts for each prompt with a required call."""
    _, *lines = (FOLDER / "recording-required.jsonl").read_text().splitlines()
    return {line["asked"]: line["texts"] for line in map(json.loads, lines)}


def recording() -> dict[str, str]:
    """Returns the model's recorded text for each prompt."""
    _, *lines = (FOLDER / "recording.jsonl").read_text().splitlines()
    return {line["asked"]: line["text"] for line in map(json.loads, lines)}


def request(prompt: Prompt, model: str = MODEL) -> Request:
    """Returns the request of a client."""
    return Request(
        model=model,
        messages=(Message("user", (Text(prompt.ask),)),),
        tools=tuple(tools()),
        sampling=Sampling(temperature=0),
        max_tokens=REPLY_TOKENS,
    )


def required(request: Request) -> Request:
    """Returns the request with a required call; their number is not limited."""
    return replace(request, tool_choice=ToolChoice("required"))


def leaks(events: Sequence[AnyEvent]) -> bool:
    """Whether the client gets a tool call as text without a warning."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    is_reported = any(isinstance(event, Notice) for event in events)
    return not is_reported and bool(re.search(r'"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"', text))


def calls_in(pieces: Iterable[str], lenient: bool = True) -> list[ToolCall]:
    """Returns the complete calls that a reader finds in the model's text."""
    ids = itertools.count()
    options = ReaderOptions(lenient=lenient)
    reader = ReplyReader(formats.get("hermes"), tools(), new_id=lambda: str(next(ids)), options=options)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return complete_calls([*events, *reader.close()])


def count(results: Iterable[PromptResult]) -> Count:
    """Returns the numbers over the prompts with a suitable tool."""
    schemas = {t.name: Draft202012Validator(json.loads(t.parameters)) for t in tools()}
    total = Count()
    for result in results:
        total.prompts += 1
        total.tagged += TAG in result.raw
        total.strict += bool(calls_in([result.raw], lenient=False))
        total.called += bool(result.calls)
        if result.calls and result.calls[0].name == result.prompt.tool:
            total.named += 1
            arguments = json.loads(result.calls[0].arguments)
            valid = schemas[result.prompt.tool].is_valid(arguments)
            total.valid += valid
            total.right += valid and holds(arguments, result.prompt.holds or {})
    return total


def holds(arguments: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether the arguments have the required content: equal numbers, and texts that are contained in any case."""
    return all(key in arguments and _contains(arguments[key], fact) for key, fact in facts.items())


def _contains(value: Any, fact: Any) -> bool:
    if isinstance(fact, list):
        return all(_contains(value, each) for each in fact)
    return fact.lower() in str(value).lower() if isinstance(fact, str) else value == fact


def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "prompts.json").read_text())
    return loaded


@dataclass
class Completion:
    """The model's input and output."""

    prompt: str
    text: str = ""


class RecordingEngine:
    """An engine that stores its completions."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.runs: list[Completion] = []

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Generates with the engine."""
        self.runs.append(run := Completion(body["prompt"]))
        async with aclosing(self._engine.complete(body, admitted=admitted, slot=slot)) as outputs:
            async for output in outputs:
                if isinstance(output, TokenText):
                    run.text += output.text
                yield output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def run(model: str, record: bool) -> Count:
    """Sends all prompts with a free choice to the backend, prints progress, and counts."""
    results, lines = [], [_head(model)]
    async with _running(model) as (backend, engine):
        for number, prompt in enumerate(prompts(), 1):
            batches = backend.generate(request(prompt, model), _context(number))
            calls = complete_calls([event async for batch in batches for event in batch])
            completion = engine.runs[-1]
            results.append(PromptResult(prompt, completion.text, calls))
            digest = hashlib.sha256(completion.prompt.encode()).hexdigest()
            lines.append({"asked": prompt.ask, "prompt_sha256": digest, "text": completion.text})
            summary = "; ".join(f"{c.name} {c.arguments}" for c in calls) or f"text {completion.text!r:.100}"
            _say(f"{number:2} {prompt.ask}\n      {' '.join(summary.split())}")
    if record:
        _write("recording.jsonl", lines)
    print(f"\n{model}, {len(tools())} tools offered, free choice, temperature 0")
    total = count(result for result in results if result.prompt.tool)
    print("\n".join(total.lines()))
    chats = [result for result in results if not result.prompt.tool]
    wrong = sum(bool(result.calls) for result in chats)
    print(f"{wrong:3} of {len(chats)}  replies call a tool where none fits: the model's mistake")
    return total


async def run_required(model: str, record: bool) -> Count:
    """Sends the forty with a required call and the others with a free choice through a gateway; counts."""
    head = {**_head(model), "how": "python -m bench.forty --required --record"}
    head["settings"] = head["settings"].replace("auto", "required (auto where no tool fits)")
    results: list[PromptResult] = []
    lines: list[dict[str, Any]] = [head]
    single_calls = leaked = 0
    async with _running(model) as (backend, engine):
        gateway = Gateway([backend])
        for number, prompt in enumerate(prompts(), 1):
            client_request = required(request(prompt, model)) if prompt.tool else request(prompt, model)
            before = len(engine.runs)
            batches = gateway.generate(client_request, _context(number))
            events = [event async for batch in batches for event in batch]
            calls = complete_calls(events)
            texts = [completion.text for completion in engine.runs[before:]]
            results.append(PromptResult(prompt, texts[0], calls))
            single_calls += bool(prompt.tool) and len(calls) == 1
            leaked += leaks(events)
            lines.append({"asked": prompt.ask, "texts": texts})
            _say(f"{number:2} {prompt.ask}\n      {len(texts)} generations, {len(calls)} calls, {calls[:1]}")
    if record:
        _write("recording-required.jsonl", lines)
    total = count(result for result in results if result.prompt.tool)
    print(f"\n{model}, {len(tools())} tools offered, a call required, temperature 0")
    print("\n".join(total.lines()))
    print(f"{single_calls:3} of {total.prompts}  answers have exactly one call")
    chats = len(results) - total.prompts
    print(f"{leaked:3} of {chats}  answers to plain talk have a call as text that is not reported")
    return total


@asynccontextmanager
async def _running(model: str) -> AsyncGenerator[tuple[EmbeddedModel, RecordingEngine], None]:
    """Runs the model; its completions are stored in the engine."""
    config = EmbeddedConfig(model=model, context_window=4096, max_concurrency=1, prefix_cache_mb=0)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), _say)
    engine = RecordingEngine(backend.engine)
    backend.engine = cast(LlamaProcess, engine)
    await backend.start()
    try:
        yield backend, engine
    finally:
        await backend.close()


def _context(number: int) -> ExchangeContext:
    return ExchangeContext(str(number), int(time.time()), lambda: f"{time.monotonic_ns():024}")


def _write(name: str, lines: Iterable[Mapping[str, Any]]) -> None:
    (FOLDER / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _head(model: str) -> dict[str, str]:
    return {
        "how": "python -m bench.forty --record",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": model,
        "weights_sha256": models.get(model).sha256,
        "engine": f"xllamacpp {version('xllamacpp')}",
        "settings": f"temperature 0, max_tokens {REPLY_TOKENS}, tool_choice auto, {len(tools())} tools",
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Runs the command; the exit status is 1 if fewer than 38 of the forty become tool calls."""
    parser = argparse.ArgumentParser(prog="python -m bench.forty", description=__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a known model (default: {MODEL})")
    parser.add_argument("--record", action="store_true", help="store the raw texts for the test")
    parser.add_argument("--required", action="store_true", help="require a call of the forty, through the gateway")
    args = parser.parse_args()
    total = asyncio.run((run_required if args.required else run)(args.model, args.record))
    return 0 if total.called >= 38 else 1


if __name__ == "__main__":
    sys.exit(main())
