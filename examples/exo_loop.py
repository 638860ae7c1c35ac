"""Reads tool calls from tokens that another process generates, for many requests at once. See docs/embedding.md.

    python examples/exo_loop.py

A runner, here in a thread and in exo in a process, steps all requests in turn and sends chunks of tokens. The API
server reads them as an async generator. `with_calls` is the only code between them: it turns token chunks into chunks
with reasoning, text and calls, from which the engine writes its APIs. The runner of this example replays recorded texts
of models; replace it with the engine's own.
"""

import asyncio
import contextlib
import queue
import sys
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import dragoman


@dataclass(frozen=True)
class TokenChunk:
    """The text of one token. From a runner, `text` contains special tokens too."""

    text: str
    token_id: int = 0
    finish_reason: Literal["stop", "length"] | None = None
    is_thinking: bool = False


@dataclass(frozen=True)
class ToolCallChunk:
    """The last chunk of a response with tool calls."""

    tool_calls: tuple[dragoman.ToolCall, ...]
    finish_reason: Literal["tool_calls"] = "tool_calls"


@dataclass(frozen=True)
class ErrorChunk:
    """The last chunk of a response that failed."""

    error_message: str


Chunk: TypeAlias = TokenChunk | ToolCallChunk | ErrorChunk
Chunks: TypeAlias = AsyncGenerator[Chunk, None]


async def with_calls(chunks: Chunks, reader: dragoman.ToolCallReader) -> Chunks:
    """Yields a runner's chunks with reasoning marked and with complete calls in the last chunk.

    Closing this generator closes `chunks`, which cancels the request.
    """
    calls: list[dragoman.ToolCall] = []
    async with aclosing(chunks):
        async for chunk in chunks:
            if not isinstance(chunk, TokenChunk):
                yield chunk
                return
            events = reader.feed(chunk.text)
            cut_off = chunk.finish_reason == "length"
            if ended := chunk.finish_reason is not None or reader.finished:
                events += reader.close("length" if cut_off else "stop")
            for event in events:
                match event:
                    case dragoman.TextDelta(text):
                        yield TokenChunk(text, chunk.token_id)
                    case dragoman.ReasoningDelta(text):
                        yield TokenChunk(text, chunk.token_id, is_thinking=True)
                    case dragoman.ToolCallStart(_, id, name):
                        begun, arguments = dragoman.ToolCall(id, name, ""), ""
                    case dragoman.ToolCallDelta(_, text):
                        arguments += text
                    case dragoman.ToolCallEnd():
                        calls.append(dragoman.ToolCall(begun.id, begun.name, arguments))
                    case dragoman.Notice(code, message):
                        sys.stderr.write(f"{code}: {message}\n")
            if ended:
                # No chunk contains a truncated call: the client gets "length" and runs no tool.
                done = calls and not cut_off
                yield (
                    ToolCallChunk(tuple(calls)) if done else TokenChunk("", finish_reason=chunk.finish_reason or "stop")
                )
                return


class Runner:
    """Generates one token of each request in turn, and sends it to the request's queue."""

    def __init__(self, model: Mapping[str, Sequence[str]], loop: asyncio.AbstractEventLoop) -> None:
        """`model` maps each prompt to the texts of the tokens that follow it."""
        self._model = model
        self._loop = loop
        self._tasks: queue.SimpleQueue[tuple[str, _Task | None]] = queue.SimpleQueue()
        self.steps: dict[str, int] = {}
        """The number of generated tokens, by task."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def stream(self, task: str, prompt: str, max_tokens: int) -> Chunks:
        """Yields the chunks of a request; closing the generator cancels the request."""
        home: asyncio.Queue[Chunk] = asyncio.Queue()
        self._tasks.put((task, _Task(prompt, max_tokens, home)))
        try:
            while True:
                chunk = await home.get()
                yield chunk
                if not isinstance(chunk, TokenChunk) or chunk.finish_reason:
                    return
        finally:
            self._tasks.put((task, None))

    def close(self) -> None:
        """Ends the thread after its current step."""
        self._tasks.put(("", None))
        self._thread.join()

    def _run(self) -> None:
        active: dict[str, Iterator[Chunk]] = {}
        homes: dict[str, asyncio.Queue[Chunk]] = {}
        while True:
            while not active or not self._tasks.empty():
                task, asked = self._tasks.get()
                if not task:
                    return
                active.pop(task, None)
                if asked:
                    active[task], homes[task] = self._generate(task, asked), asked.home
            for task in [*active]:
                if (chunk := next(active[task], None)) is None:
                    del active[task]
                else:
                    self._loop.call_soon_threadsafe(homes[task].put_nowait, chunk)

    def _generate(self, task: str, asked: "_Task") -> Iterator[Chunk]:
        if asked.prompt not in self._model:
            yield ErrorChunk("the model has no such prompt")
            return
        for n, text in enumerate(self._model[asked.prompt], 1):
            self.steps[task] = n
            if n == asked.max_tokens:
                yield TokenChunk(text, n, "length")
                return
            yield TokenChunk(text, n)
        yield TokenChunk("", 0, "stop")


@dataclass(frozen=True)
class _Task:
    prompt: str
    max_tokens: int
    home: "asyncio.Queue[Chunk]"


@dataclass
class Engine:
    """The engine as the API server uses it."""

    runner: Runner
    format: str

    def ask(self, task: str, prompt: str, tools: Sequence[Mapping[str, Any]], max_tokens: int = 4096) -> Chunks:
        """Returns the chunks of the response to a rendered prompt, for any API."""
        reader = dragoman.ToolCallReader(self.format, tools, prompt_suffix=dragoman.open_reasoning_prefix(prompt))
        return with_calls(self.runner.stream(task, prompt, max_tokens), reader)


TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
TEXTS = {
    "Paris?<|im_start|>assistant\n<think>\n": "They want weather.\n</think>\n\nLet me look.\n" + CALL % "Paris",
    "Both?<|im_start|>assistant\n": f"{CALL % 'Rome'}\n{CALL % 'Oslo'}",
    "How are you?<|im_start|>assistant\n": "Fine; a call begins with <tool_call>, but this is none.",
}
"""Prompts, and the recorded texts of models."""


def tokens(text: str) -> list[str]:
    """Cuts a text into pieces of three characters, markers too."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


async def main() -> None:
    """Runs four requests at once, one of which reaches its token limit, and a fifth whose client disconnects."""
    runner = Runner({prompt: tokens(text) for prompt, text in TEXTS.items()}, asyncio.get_running_loop())
    engine = Engine(runner, "hermes")

    async def told(name: str, prompt: str, **settings: Any) -> None:
        said, thoughts = "", ""
        async for chunk in engine.ask(name, prompt, TOOLS, **settings):
            match chunk:
                case TokenChunk(text, _, finish, is_thinking):
                    said, thoughts = (said, thoughts + text) if is_thinking else (said + text, thoughts)
                    if finish:
                        sys.stdout.write(f"{name}: {said!r} ({finish})\n")
                case ToolCallChunk(calls):
                    made = ", ".join(f"{call.name} {call.arguments}" for call in calls)
                    sys.stdout.write(f"{name}: thought {thoughts!r}, said {said!r}, called {made}\n")

    paris, both, fine = TEXTS
    with contextlib.closing(runner):
        await asyncio.gather(told("1", paris), told("2", both), told("3", fine), told("4", both, max_tokens=20))
        async with aclosing(engine.ask("5", fine, TOOLS)) as leaving:
            async for _ in leaving:
                break


if __name__ == "__main__":
    asyncio.run(main())
