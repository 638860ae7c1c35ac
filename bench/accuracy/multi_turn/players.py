"""What answers in a task: Dragoman with its embedded model, or the engine's own server without Dragoman."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from bench.accuracy.generate import Meter
from bench.accuracy.texts import exchange_context
from dragoman.backends.embedded import weights
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.collect import collect
from dragoman.core.events import Failure
from dragoman.core.messages import Message, Part, Request, Sampling, Text, Tool, ToolCall, ToolResult, part_text
from dragoman.gateway.gateway import Gateway

ANSWER_TOKENS = 500
CONTEXT_WINDOW = 8192


@dataclass
class Spent:
    """The cost of answers."""

    input_tokens: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0


class Player(Protocol):
    """Answers messages with text, calls, or both."""

    spent: Spent

    async def answer(self, messages: Sequence[Message], tools: Sequence[Tool], seed: int) -> tuple[Part, ...]:
        """Returns the parts of the answer.

        Args:
            messages: the conversation.
            tools: the tools that are offered.
            seed: 0 for temperature 0, else the seed at temperature 0.3.
        """
        ...


def sampling(seed: int) -> Sampling:
    """Returns temperature 0 for seed 0, else 0.3 with the seed."""
    return Sampling(temperature=0.3, seed=seed) if seed else Sampling(temperature=0)


class DragomanPlayer:
    """Dragoman with default settings and a free choice of tools."""

    def __init__(self, model: str, gateway: Gateway, meter: Meter) -> None:
        self._model = model
        self._gateway = gateway
        self._meter = meter
        self.spent = Spent()

    async def answer(self, messages: Sequence[Message], tools: Sequence[Tool], seed: int) -> tuple[Part, ...]:
        """Returns the parts of the answer; see `Player`."""
        request = Request(self._model, tuple(messages), tuple(tools), sampling=sampling(seed), max_tokens=ANSWER_TOKENS)
        self._meter.begin(free=False)
        async with aclosing(self._gateway.generate(request, exchange_context())) as batches:
            events = [event async for batch in batches for event in batch]
        for event in events:
            if isinstance(event, Failure):
                raise event.error
        self.spent.input_tokens += self._meter.input_tokens
        self.spent.output_tokens += self._meter.output_tokens
        self.spent.cpu_s += self._meter.cpu_s
        return collect(events).parts


class BarePlayer:
    """The chat completions of the engine's own server, with the chat template of the model."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.spent = Spent()

    async def answer(self, messages: Sequence[Message], tools: Sequence[Tool], seed: int) -> tuple[Part, ...]:
        """Returns the parts of the answer; see `Player`."""
        body = {
            "messages": [each for message in messages for each in _openai_messages(message)],
            "tools": [_openai_tool(tool) for tool in tools],
            "max_tokens": ANSWER_TOKENS,
            "cache_prompt": True,
            "temperature": 0.3 if seed else 0,
            "seed": seed,
        }
        began = time.process_time()
        reply = await asyncio.to_thread(self._complete, body)
        self.spent.cpu_s += time.process_time() - began
        usage, message = reply["usage"], reply["choices"][0]["message"]
        self.spent.input_tokens += usage["prompt_tokens"]
        self.spent.output_tokens += usage["completion_tokens"]
        calls = [
            ToolCall(call["id"] or f"call{number}", call["function"]["name"], call["function"]["arguments"])
            for number, call in enumerate(message.get("tool_calls") or ())
        ]
        text = message.get("content") or ""
        return (*([Text(text)] if text else ()), *calls)

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def add(chunk: dict[str, Any]) -> bool:
            found.append(chunk)
            return False

        self._server.handle_chat_completions(body, add)
        if not found or "choices" not in found[-1]:
            raise SystemExit(f"expected a completion of the engine's server, got {found[-1:]}")
        return found[-1]


def _openai_messages(message: Message) -> list[dict[str, Any]]:
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if results:
        return [
            {"role": "tool", "tool_call_id": each.call_id, "content": "".join(map(part_text, each.parts))}
            for each in results
        ]
    out: dict[str, Any] = {"role": message.role, "content": "".join(map(part_text, message.parts))}
    if calls := [part for part in message.parts if isinstance(part, ToolCall)]:
        out["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return [out]


def _openai_tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": json.loads(tool.parameters)}
    return {"type": "function", "function": function}


@asynccontextmanager
async def player(arm: str, model: str) -> AsyncGenerator[Player, None]:
    """Runs what answers.

    Args:
        arm: `dragoman` or `bare`.
        model: name of a known model.
    """
    if arm == "bare":
        yield BarePlayer(_bare_server(model))
        return
    config = EmbeddedConfig(model=model, context_window=CONTEXT_WINDOW, max_concurrency=1, prefix_cache_mb=0, threads=1)
    backend = EmbeddedModel.from_config(config, weights.find_weights(model), print)
    backend.engine = meter = Meter(backend.engine)  # type: ignore[assignment]  # other attributes are the engine's
    await backend.start()
    try:
        yield DragomanPlayer(model, Gateway([backend]), meter)
    finally:
        await backend.close()


def _bare_server(model: str) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights.find_weights(model))
    params.use_jinja = True
    params.n_parallel = 1
    params.n_ctx = CONTEXT_WINDOW
    params.n_gpu_layers = 0
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.ui = False
    return xllamacpp.Server(params)
