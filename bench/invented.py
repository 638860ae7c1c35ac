"""How often a small model calls a tool with an identifier that it invented, without and with the guard's re-ask.

    python -m bench.invented [--model NAME] [--setting off --setting reask] [--record]
    python -m bench.invented --recorded

Each conversation asks for something that needs an id. `invented.toml` lists the ids that the conversation has, so the
judge does not depend on the guard's detector: a response is wrong if a call has any other. It is right if its first
call is of a tool that finds the id or, where the id is known, uses it. Temperature 0; one response each.
"""

import argparse
import asyncio
import json
import sys
import time
import tomllib
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from bench.accuracy import texts
from bench.accuracy.generate import Meter
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import JsonText, Message, Part, Request, Sampling, Text, Tool, ToolCall, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy

CONVERSATIONS = Path(__file__).with_suffix(".toml")
RECORDING = texts.FOLDER / "invented.jsonl"
MODEL = "qwen2.5-coder-1.5b"
REPLY_TOKENS = 200
CONTEXT = 4096
SETTINGS: Final = ("off", "reask")


class Conversation(NamedTuple):
    """A conversation, the ids that it has, and the tools with which a right response begins."""

    id: str
    ask: str
    request: Request
    known: frozenset[str]
    first: Sequence[str]


class InventedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the client gets in one conversation, and its cost."""

    setting: str
    """`guard.invented_values`."""
    id: str
    ask: str
    calls: list[tuple[str, JsonText]]
    """Name and arguments of each."""
    generations: int
    output_tokens: int
    cpu_s: float
    """CPU seconds of the engine's process."""
    text: str = ""


class SettingResult(msgspec.Struct):
    """The results of one setting."""

    setting: str
    answers: int = 0
    invented: int = 0
    """Responses with an invented id."""
    right: int = 0
    """Others whose first call is of a listed tool."""
    in_words: int = 0
    generations: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.setting:6} {self.answers} conversations: {self.invented} with an invented value, {self.right} "
            f"begin with the right tool, {self.in_words} in words; {self.generations} generations, "
            f"{self.output_tokens} tokens written, {self.cpu_s:.0f} CPU s"
        )


def conversations(model: str = MODEL) -> dict[str, Conversation]:
    """Returns the conversations of the file, by id."""
    data = tomllib.loads(CONVERSATIONS.read_text())
    tools = {
        name: tuple(Tool(t["name"], t["description"], _schema(t)) for t in data["tools"][name])
        for name in data["tools"]
    }
    found = [
        Conversation(
            each["id"],
            each["ask"],
            Request(
                model,
                tuple(_messages(each)),
                tools[each["tools"]],
                sampling=Sampling(temperature=0),
                max_tokens=REPLY_TOKENS,
            ),
            frozenset(each["known"]),
            each["first"],
        )
        for each in data["conversation"]
    ]
    return {each.id: each for each in found}


def _schema(tool: Mapping[str, Any]) -> str:
    properties = {name: {"type": "string", "description": text} for name, text in tool["parameters"].items()}
    return json.dumps({"type": "object", "properties": properties, "required": list(properties)})


def _messages(each: Mapping[str, Any]) -> list[Message]:
    messages = [Message("user", (Text(each["ask"]),))]
    for number, step in enumerate(each.get("steps", ())):
        call = ToolCall(f"call_{number}", step["call"], json.dumps(step["arguments"]))
        result: Part = ToolResult(call.id, (Text(step["result"]),))
        messages += [Message("assistant", (call,)), Message("tool", (result,))]
    return messages


def is_id(parameter: str) -> bool:
    """Returns whether values of a parameter of this name are judged."""
    return parameter.endswith("_id") or parameter == "path"


def invented_ids(known: Iterable[str], calls: Iterable[tuple[str, JsonText]]) -> list[str]:
    """Returns the ids in the arguments of calls that are not known.

    Args:
        known: the ids that the conversation has; another notation of one is not known.
        calls: name and arguments of each call.
    """
    ids = [
        str(value) for _, arguments in calls for name, value in _members(arguments) if is_id(name) and value is not None
    ]
    return [each for each in ids if each not in set(known)]


def _members(arguments: JsonText) -> Iterable[tuple[str, Any]]:
    """Returns the members of an object; none if it is something else."""
    try:
        decoded = json.loads(arguments)
    except ValueError:
        return ()
    return decoded.items() if isinstance(decoded, dict) else ()


def is_right(conversation: Conversation, answer: InventedAnswer) -> bool:
    """Returns whether the response begins with the right tool, and has no invented id."""
    calls = answer.calls
    return bool(calls) and calls[0][0] in conversation.first and not invented_ids(conversation.known, calls)


def results(answers: Iterable[InventedAnswer], cases: Mapping[str, Conversation]) -> list[SettingResult]:
    """Returns the results of each setting.

    Args:
        answers: the answers.
        cases: the conversations, by id.
    """
    found: dict[str, SettingResult] = {}
    for each in answers:
        case, result = cases[each.id], found.setdefault(each.setting, SettingResult(each.setting))
        result.answers += 1
        result.invented += bool(invented_ids(case.known, each.calls))
        result.right += is_right(case, each)
        result.in_words += not each.calls
        result.generations += each.generations
        result.output_tokens += each.output_tokens
        result.cpu_s += each.cpu_s
    return [*found.values()]


async def run(model: str, settings: Sequence[str]) -> list[InventedAnswer]:
    """Sends each conversation with each setting of the guard, and returns the answers."""
    cases = conversations(model).values()
    async with _running(model) as (backend, meter):
        return [await _ask(backend, meter, case, setting) for setting in settings for case in cases]


@asynccontextmanager
async def _running(model: str) -> AsyncGenerator[tuple[EmbeddedModel, Meter], None]:
    config = EmbeddedConfig(model=model, context_window=CONTEXT, max_concurrency=1, prefix_cache_mb=0, threads=1)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), _say)
    meter = Meter(backend.engine)
    backend.engine = cast(LlamaProcess, meter)
    await backend.start()
    try:
        yield backend, meter
    finally:
        await backend.close()


async def _ask(backend: EmbeddedModel, meter: Meter, case: Conversation, setting: str) -> InventedAnswer:
    gateway = Gateway([backend], policy=GuardPolicy(invented_values=setting))
    meter.begin(free=False)
    batches = gateway.generate(case.request, ExchangeContext(case.id, int(time.time()), _new_id))
    parts = collect([event async for batch in batches for event in batch]).parts
    calls = [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    cost = (meter.runs, meter.output_tokens, round(meter.cpu_s, 2))
    answer = InventedAnswer(setting, case.id, case.ask, calls, *cost, text)
    verdict = "INVENTED" if invented_ids(case.known, calls) else "right" if is_right(case, answer) else ""
    output = "; ".join(f"{name} {arguments}" for name, arguments in calls) or repr(text)[:160]
    _say(f"{setting:6} {case.id:30.30} {verdict:8} {meter.runs} {case.ask:.60} -> {output}")
    return answer


def read(path: Path) -> list[InventedAnswer]:
    """Returns the answers of a recording; none if it does not exist."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=InventedAnswer) for line in lines[1:]]


def record(model: str, answers: Iterable[InventedAnswer], path: Path) -> None:
    """Stores the answers for the tests, after a line about how they were generated."""
    settings = f"temperature 0, at most {REPLY_TOKENS} tokens, context of {CONTEXT}, one thread"
    head = texts.recording_head("python -m bench.invented --record", model, settings)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (head, *answers)))


def _new_id() -> str:
    return f"{time.monotonic_ns():024}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Runs the command; the exit status is 1 if there is no recording."""
    parser = argparse.ArgumentParser(prog="python -m bench.invented", description=__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a known model (default: {MODEL})")
    parser.add_argument(
        "--setting", action="append", help=f"`guard.invented_values`, several times (default: {', '.join(SETTINGS)})"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--record", action="store_true", help="store the answers for the tests, instead of those before"
    )
    source.add_argument("--recorded", action="store_true", help="judge the stored answers, without a model")
    args = parser.parse_args()
    if args.recorded:
        answers = [each for each in read(RECORDING) if not args.setting or each.setting in args.setting]
    else:
        answers = asyncio.run(run(args.model, args.setting or SETTINGS))
    if args.record:
        record(args.model, answers, RECORDING)
    if not answers:
        _say(f"no such answers in {RECORDING}; --record stores them")
    print("\n".join(map(str, results(answers, conversations()))))
    return 0 if answers else 1


if __name__ == "__main__":
    sys.exit(main())
