"""Kills one of two real llama-servers under running streams: how many are continued, and with which text.

    python -m bench.continuation
    python -m bench.continuation --streams 50 --rounds 6 --model qwen2.5-coder-1.5b

Each round starts the streams at temperature 0, half of them at each server, kills one server with SIGKILL once a third
of the text has arrived, and starts it again at the end. Each text is compared with those of two undisturbed runs, of
the stream alone and of all at once: the batches of a server change its rounding, and with it a text now and then. A
stream counts as cut if its response has the warning `continued`. The exit status is 1 if a stream failed, or if less
than 99 %
of those that were cut are like an undisturbed one.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from dragoman.backends.embedded import weights
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import Failure, Notice, ReasoningDelta, TextDelta
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Request, Sampling, Text
from dragoman.gateway.gateway import Gateway

MIN_SHARE: Final = 0.99
START_S: Final = 120.0
SLOT_TOKENS: Final = 320
NAMES: Final = ("a", "b")
TOPICS: Final = (
    *("the sea", "bread", "mountains", "trains", "rain", "music", "gardens", "winter", "maps", "horses"),
    *("bridges", "coffee", "clocks", "rivers", "books", "stars", "markets", "boats", "birds", "letters"),
    *("glass", "schools", "forests", "salt", "cities"),
)


class Answer(NamedTuple):
    """The text of one stream."""

    text: str
    is_continued: bool
    error: str


class LlamaServer:
    """A llama-server that can be killed and started again at the same port."""

    def __init__(self, path: Path, slots: int) -> None:
        """Args:
        path: The weights.
        slots: Number of streams that it runs at once.
        """
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/v1"
        program = Path(sys.executable).with_name("llama-server-vulkan")
        self._command = [str(program), "-m", str(path), "--port", str(self._port), "-np", str(slots), "--jinja"]
        self._command += ["-c", str(slots * SLOT_TOKENS), "-ngl", "0", "-t", "2", "--no-warmup"]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Starts the process, and waits until it has loaded the model."""
        environ = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        none = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, env=environ, stdin=none, stdout=none, stderr=none)
        async with asyncio.timeout(START_S), httpx2.AsyncClient(trust_env=False) as client:
            while True:
                with contextlib.suppress(httpx2.TransportError):
                    if (await client.get(f"http://127.0.0.1:{self._port}/health")).status_code == 200:
                        return
                await asyncio.sleep(0.1)

    def kill(self) -> None:
        """Ends the process with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class Progress:
    """Number of pieces of text that have arrived in all streams of a run."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self.reached = asyncio.Event()
        """Set when the limit is reached."""

    def add(self) -> None:
        """Counts a piece."""
        self._left -= 1
        if self._left <= 0:
            self.reached.set()


@contextlib.asynccontextmanager
async def gateway(servers: Sequence[LlamaServer]) -> AsyncIterator[Gateway]:
    """Yields a gateway with the servers, under aliases that prefer the one or the other."""
    backends = [
        HttpBackend(name, HttpConfig(url=each.url, models=("m",), endpoint="completions", max_retries=0), {})
        for name, each in zip(NAMES, servers, strict=True)
    ]
    one, two = (f"{name}/m" for name in NAMES)
    opened = Gateway(backends, {"m0": (one, two), "m1": (two, one)})
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


async def stream(to: Gateway, number: int, tokens: int, progress: Progress) -> Answer:
    """Returns the text of one stream.

    Args:
        to: The gateway.
        number: Number of the stream; decides its prompt, and the server that is preferred.
        tokens: Limit of its tokens.
        progress: Counts the pieces of text.
    """
    topic = TOPICS[number % len(TOPICS)]
    form = ("Write a short story about {}.", "Explain {} to a child.")[number // len(TOPICS) % 2].format(topic)
    request = Request(
        f"m{number % 2}",
        (Message("user", (Text(form),)),),
        max_tokens=tokens,
        sampling=Sampling(temperature=0.0),
        stream=True,
    )
    texts, is_continued, error = [], False, ""
    context = ExchangeContext(random_id(), int(time.time()), random_id)
    async with contextlib.aclosing(to.generate(request, context)) as batches:
        async for batch in batches:
            for event in batch:
                if isinstance(event, TextDelta | ReasoningDelta):
                    texts.append(event.text)
                    progress.add()
                elif isinstance(event, Failure):
                    error = str(event.error)
                elif isinstance(event, Notice):
                    is_continued = is_continued or event.code == "continued"
    return Answer("".join(texts), is_continued, error)


async def run(to: Gateway, streams: int, tokens: int, victim: LlamaServer | None = None) -> list[Answer]:
    """Returns the answers of all streams at once.

    Args:
        to: The gateway.
        streams: Number of streams.
        tokens: Limit of the tokens of each.
        victim: The server that is killed after a third of the text; None: none is.
    """
    progress = Progress(streams * tokens // 3)
    running = [asyncio.create_task(stream(to, number, tokens, progress)) for number in range(streams)]
    if victim is not None:
        await progress.reached.wait()
        await asyncio.to_thread(victim.kill)
    return await asyncio.gather(*running)


async def measure(model: str, streams: int, rounds: int, tokens: int) -> dict[str, Any]:
    """Returns the counts of all rounds.

    Args:
        model: Name of the model.
        streams: Number of streams.
        rounds: Number of rounds.
        tokens: Limit of the tokens of each stream.
    """
    servers = [LlamaServer(weights.find_weights(model), streams) for _ in NAMES]
    counts = {"streams": 0, "failed": 0, "cut": 0, "as_undisturbed": 0, "uncut": 0, "uncut_as_undisturbed": 0}
    try:
        await asyncio.gather(*(each.start() for each in servers))
        async with gateway(servers) as to:
            alone = [await stream(to, number, tokens, Progress(1)) for number in range(streams)]
            together = await run(to, streams, tokens)
            known = [{answer.text for answer in pair} for pair in zip(alone, together, strict=True)]
            counts["undisturbed_runs_alike"] = sum(len(each) == 1 for each in known)
            for number in range(rounds):
                victim = servers[number % 2]
                for answer, texts in zip(await run(to, streams, tokens, victim), known, strict=True):
                    kind = "cut" if answer.is_continued else "uncut"
                    same = "as_undisturbed" if answer.is_continued else "uncut_as_undisturbed"
                    counts["streams"] += 1
                    counts["failed"] += bool(answer.error)
                    counts[kind] += 1
                    counts[same] += answer.text in texts
                print(json.dumps({"round": number + 1, **counts}), flush=True)
                await victim.start()
    finally:
        for each in servers:
            each.kill()
    return counts


def main() -> int:
    """Prints the counts, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=96)
    options = parser.parse_args()
    counts = asyncio.run(measure(options.model, options.streams, options.rounds, options.tokens))
    is_good = counts["failed"] == 0 and counts["as_undisturbed"] >= MIN_SHARE * counts["cut"]
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
