"""Asks a small model for calls of tools with awkward conventions, without and with learned examples.

    python -m bench.learned_examples [--model NAME] [--counts 0 1 3] [--record]

Each round has a gateway of its own. The calls of `learned` are sent as earlier conversations of a client, whose results
were no errors; then each prompt is one request with all ten tools, and a second one with the result of its call. A
value counts as copied if an example has it and the right arguments do not. `--record` stores each answer for the test,
and continues a recording that was stopped.
"""

import argparse
import asyncio
import json
import sys
import time
import tomllib
from collections.abc import AsyncGenerator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.backend import ExchangeContext
from dragoman.core.client import ClientFacts
from dragoman.core.collect import collect
from dragoman.core.messages import Message, Reply, Request, Sampling, Text, Tool, ToolCall, ToolResult
from dragoman.gateway.examples.config import ExamplesConfig
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.gateway import Gateway
from dragoman.redaction.redact import Redactor
from dragoman.state.memory_store import MemoryStateStore

MODEL = "qwen2.5-coder-1.5b"
REPLY_TOKENS = 128
RECORDING = Path(__file__).parent.parent.parent / "tests" / "data" / "backends" / "learned_examples.jsonl"
CLIENT = ClientFacts(key="bench")


class TaskPrompt(msgspec.Struct):
    """A prompt, and the arguments that are right."""

    ask: str
    arguments: dict[str, Any]


class ConventionTool(msgspec.Struct):
    """A tool, calls of it that worked, and prompts."""

    name: str
    description: str
    schema: str
    learned: list[str]
    prompts: list[TaskPrompt]

    @property
    def tool(self) -> Tool:
        """The tool as it is offered."""
        return Tool(self.name, self.description, self.schema)


class Answered(NamedTuple):
    """What the model did with one prompt."""

    examples: int
    """Examples of each tool in the prompt."""
    ask: str
    calls: list[tuple[str, str]]
    is_right: bool
    copied: list[str]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    next_new_tokens: int
    """Tokens of the second request of the conversation that were not in the cache."""
    cpu_s: float
    """CPU seconds of the engine for both requests."""


def load_cases() -> list[ConventionTool]:
    """Returns the tools and their prompts."""
    return msgspec.convert(
        tomllib.loads((Path(__file__).parent / "cases.toml").read_text())["tools"], list[ConventionTool]
    )


def is_right(calls: Sequence[ToolCall], name: str, expected: Mapping[str, Any]) -> bool:
    """Returns whether there is one call, of this tool, whose arguments have the expected members."""
    if len(calls) != 1 or calls[0].name != name:
        return False
    arguments = json.loads(calls[0].arguments)
    return all(_plain(arguments.get(key)) == _plain(value) for key, value in expected.items())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(value.split()).lower()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def leaves(value: Any) -> Iterator[str]:
    """Yields the strings and numbers of a JSON value, as text."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield str(value)


def copied_values(call: ToolCall, learned: Sequence[str], prompt: TaskPrompt) -> list[str]:
    """Returns values of a call that an example has, and neither the right arguments nor the prompt."""
    known = {value for text in learned for value in leaves(json.loads(text))}
    right = set(leaves(prompt.arguments))
    values = leaves(json.loads(call.arguments))
    return [each for each in values if each in known and each not in right and each not in prompt.ask]


def learn(memory: ExampleMemory, cases: Sequence[ConventionTool], count: int) -> None:
    """Learns the first calls of each tool, as from conversations of the same client."""
    for case in cases:
        for arguments in case.learned[:count]:
            call = Message("assistant", (ToolCall("call_1", case.name, arguments),))
            result = Message("tool", (ToolResult("call_1", (Text("Done."),)),))
            memory.learn(Request(MODEL, (Message("user", (Text("…"),)), call, result), (case.tool,)), CLIENT)


class ExampleBench:
    """One model, asked through gateways."""

    def __init__(self, model: str, backend: EmbeddedModel, answered: Callable[[Answered], None]) -> None:
        """
        Args:
            model: Its name.
            backend: Runs it.
            answered: Called with each answer.
        """
        self._model, self._backend, self._answered = model, backend, answered
        self._cases = load_cases()
        self._tools = tuple(case.tool for case in self._cases)
        self._number = 0

    async def run(self, count: int, skipped: Container[str]) -> None:
        """Asks all other prompts with so many examples of each tool."""
        gateway = Gateway([self._backend])
        if count:
            config = ExamplesConfig(enabled=True, max_per_tool=count, max_prompt_chars=20_000)
            # It learns nothing of the answers, so that each prompt has the same examples.
            gateway.examples = memory = ExampleMemory(config, MemoryStateStore(), Redactor())
            learn(memory, self._cases, count)
            memory.learn = lambda request, client: None  # type: ignore[method-assign]
        for case in self._cases:
            for prompt in case.prompts:
                if prompt.ask not in skipped:
                    self._answered(await self._answer(gateway, count, case, prompt))

    async def _answer(self, gateway: Gateway, count: int, case: ConventionTool, prompt: TaskPrompt) -> Answered:
        before_s = _cpu_s()
        question = Message("user", (Text(prompt.ask),))
        request = Request(
            self._model, (question,), self._tools, sampling=Sampling(temperature=0.0), max_tokens=REPLY_TOKENS
        )
        reply = await self._ask(gateway, request)
        calls = [part for part in reply.parts if isinstance(part, ToolCall)]
        results = tuple(Message("tool", (ToolResult(call.id, (Text("Done."),)),)) for call in calls)
        if calls:
            following = (question, Message("assistant", reply.parts), *results)
        else:
            following = (question, Message("assistant", reply.parts), Message("user", (Text("Thanks."),)))
        second = await self._ask(gateway, msgspec.structs.replace(request, messages=following, max_tokens=1))
        copied = [value for call in calls for value in copied_values(call, case.learned[:count], prompt)]
        answered = Answered(
            count,
            prompt.ask,
            [(call.name, call.arguments) for call in calls],
            is_right(calls, case.name, prompt.arguments),
            copied,
            reply.usage.input_tokens,
            reply.usage.cached_input_tokens,
            reply.usage.output_tokens,
            second.usage.input_tokens - second.usage.cached_input_tokens,
            round(_cpu_s() - before_s, 2),
        )
        print(
            f"{count} {'ok ' if answered.is_right else '-  '} {prompt.ask} {answered.calls} {copied}", file=sys.stderr
        )
        return answered

    async def _ask(self, gateway: Gateway, request: Request) -> Reply:
        self._number += 1
        context = ExchangeContext(
            str(self._number), int(time.time()), lambda: f"{time.monotonic_ns():024}", client=CLIENT
        )
        return collect([event async for batch in gateway.generate(request, context) for event in batch])


def _cpu_s() -> float:
    """Returns the CPU seconds of the child processes."""
    times = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    return float(sum(each.user + each.system for each in times))


@asynccontextmanager
async def _running(model: str) -> AsyncGenerator[EmbeddedModel, None]:
    config = EmbeddedConfig(model=model, context_window=8192, max_concurrency=1, prefix_cache_mb=0)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), lambda line: None)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def summary(answers: Sequence[Answered]) -> list[str]:
    """Returns a line for each number of examples."""
    lines = []
    for count in dict.fromkeys(each.examples for each in answers):
        some = [each for each in answers if each.examples == count]
        size = len(some)
        lines.append(
            f"{count} examples a tool: {sum(each.is_right for each in some)} of {size} right, "
            f"{sum(bool(each.copied) for each in some)} with a copied value, "
            f"{sum(each.input_tokens for each in some) / size:.0f} input tokens "
            f"({sum(each.cached_tokens for each in some) / size:.0f} cached), "
            f"{sum(each.output_tokens for each in some) / size:.0f} output tokens, "
            f"{sum(each.next_new_tokens for each in some) / size:.0f} new tokens in the second request, "
            f"{sum(each.cpu_s for each in some) / size:.1f} CPU s"
        )
    return lines


async def measure(model: str, counts: Sequence[int], *, record: bool) -> list[Answered]:
    """Returns the answers of all rounds, those of the recording among them."""
    answers = load_recording() if record else []

    def add(answer: Answered) -> None:
        answers.append(answer)
        if record:
            with RECORDING.open("a") as file:
                file.write(json.dumps(answer._asdict(), ensure_ascii=False) + "\n")

    async with _running(model) as backend:
        bench = ExampleBench(model, backend, add)
        for count in counts:
            await bench.run(count, {each.ask for each in answers if each.examples == count})
    return answers


def load_recording() -> list[Answered]:
    """Returns the recorded answers."""
    lines = RECORDING.read_text().splitlines() if RECORDING.exists() else []
    return [Answered(**json.loads(line)) for line in lines]


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.learned_examples", description=__doc__)
    parser.add_argument("--model", default=MODEL, help=f"a known model (default: {MODEL})")
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 1, 3], help="examples of each tool")
    parser.add_argument("--record", action="store_true", help="store the calls for the test")
    args = parser.parse_args()
    answers = asyncio.run(measure(args.model, args.counts, record=args.record))
    print("\n".join(summary(answers)))


if __name__ == "__main__":
    main()
