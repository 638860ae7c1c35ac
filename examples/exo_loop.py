"""Tool calls for an engine whose tokens come from elsewhere, many requests at once. See docs/embedding.md.

    python examples/exo_loop.py

A runner, in a thread of its own as exo's is in a process, steps all requests in turn and sends chunks of tokens; what
serves the API takes them as an async generator. `with_calls` is all that stands between: it makes chunks with
thoughts, text and calls of them, as the engine's own APIs are written from. The runner here plays texts that models
wrote; in its place belongs the engine's.
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
    """What one token gave. From a runner `text` is all that the model wrote, specials too."""

    text: str
    token_id: int = 0
    finish_reason: Literal["stop", "length"] | None = None
    is_thinking: bool = False


@dataclass(frozen=True)
class ToolCallChunk:
    """The last of an answer that calls tools."""

    tool_calls: tuple[dragoman.ToolCall, ...]
    finish_reason: Literal["tool_calls"] = "tool_calls"


@dataclass(frozen=True)
class ErrorChunk:
    """The last of an answer that broke."""

    error_message: str


Chunk: TypeAlias = TokenChunk | ToolCallChunk | ErrorChunk
Chunks: TypeAlias = AsyncGenerator[Chunk, None]


async def with_calls(chunks: Chunks, reader: dragoman.ToolCallReader) -> Chunks:
    """The answer that a runner's tokens are: thoughts marked, calls whole and at the end, every word once.

    Whoever closes this closes what it reads, and so cancels the request.
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
                # A call that the limit cut off is in no chunk: its client sees "length", and runs nothing.
                done = calls and not cut_off
                yield (
                    ToolCallChunk(tuple(calls)) if done else TokenChunk("", finish_reason=chunk.finish_reason or "stop")
                )
                return


class Runner:
    """Steps what was submitted, one token of each in turn, and sends it home."""

    def __init__(self, model: Mapping[str, Sequence[str]], loop: asyncio.AbstractEventLoop) -> None:
        """`model` has the texts of the tokens that go on from a prompt."""
        self._model = model
        self._loop = loop
        self._tasks: queue.SimpleQueue[tuple[str, _Task | None]] = queue.SimpleQueue()
        self.steps: dict[str, int] = {}
        """By task, how many tokens were made."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def stream(self, task: str, prompt: str, max_tokens: int) -> Chunks:
        """The chunks of a request; closing this cancels it."""
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
        """End the thread, which is in the middle of nothing then."""
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
    """What the API asks."""

    runner: Runner
    format: str

    def ask(self, task: str, prompt: str, tools: Sequence[Mapping[str, Any]], max_tokens: int = 4096) -> Chunks:
        """The answer to a prompt that the chat template has made, for whichever API."""
        reader = dragoman.ToolCallReader(self.format, tools, prompt_tail=dragoman.open_reasoning_prefix(prompt))
        return with_calls(self.runner.stream(task, prompt, max_tokens), reader)


TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
TEXTS = {
    "Paris?<|im_start|>assistant\n<think>\n": "They want weather.\n</think>\n\nLet me look.\n" + CALL % "Paris",
    "Both?<|im_start|>assistant\n": f"{CALL % 'Rome'}\n{CALL % 'Oslo'}",
    "How are you?<|im_start|>assistant\n": "Fine; a call begins with <tool_call>, but this is none.",
}
"""Prompts, and what models wrote."""


def tokens(text: str) -> list[str]:
    """Pieces of no shape in particular; markers are cut like anything else."""
    return [text[at : at + 3] for at in range(0, len(text), 3)]


async def main() -> None:
    """Three requests at once, one of which is cut off by its limit, and a fourth whose client leaves."""
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
