"""How often a small model calls a tool with an identifier that it invented, without and with the guard's re-ask.

    python -m bench.invented [--model NAME] [--setting off --setting reask]

Each conversation asks for something that needs an id which only another tool can return. A response is right if its
first call is of that tool, or if it asks the user. Temperature 0; one response each.
"""

import argparse
import asyncio
import json
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from bench.accuracy.generate import Meter
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.llama_process import LlamaProcess
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import Message, Part, Request, Sampling, Text, Tool, ToolCall, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.guard.invented_values.detector import InventedValueDetector
from dragoman.guard.policy import GuardPolicy

CONVERSATIONS = Path(__file__).with_suffix(".toml")
MODEL = "qwen2.5-coder-1.5b"
REPLY_TOKENS = 200


class Conversation(NamedTuple):
    """A conversation, and the tools that can find what the model does not know."""

    ask: str
    request: Request
    finders: Sequence[str]


def conversations(model: str) -> list[Conversation]:
    """Returns the conversations of the file."""
    data = tomllib.loads(CONVERSATIONS.read_text())
    tools = {
        name: tuple(Tool(t["name"], t["description"], _schema(t)) for t in data["tools"][name])
        for name in data["tools"]
    }
    return [
        Conversation(
            each["ask"],
            Request(
                model,
                tuple(_messages(each)),
                tools[each["tools"]],
                sampling=Sampling(temperature=0),
                max_tokens=REPLY_TOKENS,
            ),
            each["finders"],
        )
        for each in data["conversation"]
    ]


def _schema(tool: dict[str, Any]) -> str:
    properties = {name: {"type": "string", "description": text} for name, text in tool["parameters"].items()}
    return json.dumps({"type": "object", "properties": properties, "required": list(properties)})


def _messages(each: dict[str, Any]) -> list[Message]:
    messages = [Message("user", (Text(each["ask"]),))]
    for number, step in enumerate(each.get("steps", ())):
        call = ToolCall(f"call_{number}", step["call"], json.dumps(step["arguments"]))
        result: Part = ToolResult(call.id, (Text(step["result"]),))
        messages += [Message("assistant", (call,)), Message("tool", (result,))]
    return messages


async def run(model: str, settings: Sequence[str]) -> None:
    """Sends each conversation with each setting of the guard, and prints the results."""
    config = EmbeddedConfig(model=model, context_window=4096, max_concurrency=1, prefix_cache_mb=0)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), _say)
    meter = Meter(backend.engine)
    backend.engine = cast(LlamaProcess, meter)
    await backend.start()
    try:
        for setting in settings:
            await _run_setting(backend, meter, model, setting)
    finally:
        await backend.close()


async def _run_setting(backend: EmbeddedModel, meter: Meter, model: str, setting: str) -> None:
    gateway = Gateway([backend], policy=GuardPolicy(invented_values=setting))
    invented = found = in_words = generations = tokens = 0
    cpu_s = 0.0
    for number, each in enumerate(conversations(model), 1):
        meter.begin(free=False)
        batches = gateway.generate(each.request, ExchangeContext(str(number), int(time.time()), _new_id))
        parts = collect([event async for batch in batches for event in batch]).parts
        calls = [part for part in parts if isinstance(part, ToolCall)]
        is_invented = any(_is_invented(each.request, call) for call in calls)
        invented += is_invented
        found += bool(calls) and not is_invented and calls[0].name in each.finders
        in_words += not calls
        generations, tokens, cpu_s = generations + meter.runs, tokens + meter.output_tokens, cpu_s + meter.cpu_s
        output = "; ".join(f"{call.name} {call.arguments}" for call in calls) or repr(parts)[:160]
        _say(f"{setting:6} {number:2} {'INVENTED' if is_invented else '':8} {meter.runs} {each.ask:.60} -> {output}")
    print(
        f"{setting:6} {number} conversations: {invented} with an invented value, {found} begin with a tool that "
        f"finds it, {in_words} in words; {generations} generations, {tokens} tokens written, {cpu_s:.0f} CPU s"
    )


def _is_invented(request: Request, call: ToolCall) -> bool:
    tool = next((tool for tool in request.tools if tool.name == call.name), None)
    return InventedValueDetector(request, "warn").find(tool, call.arguments) is not None


def _new_id() -> str:
    return f"{time.monotonic_ns():024}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.invented", description=__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a known model (default: {MODEL})")
    parser.add_argument(
        "--setting", action="append", help="`guard.invented_values`, several times (default: off, reask)"
    )
    args = parser.parse_args()
    asyncio.run(run(args.model, args.setting or ["off", "reask"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
