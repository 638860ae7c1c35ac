"""Clients of the deployment: endless requests, whose text at temperature 0 is known from an undisturbed run."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
TOKENS: Final = 60
TIMEOUT_S: Final = 120.0
LEARNING_RUNS: Final = 3
PROMPTS: Final = (
    *(
        f"List the numbers from {first} to {first + 40}, separated by commas."
        for first in (1, 13, 17, 21, 25, 29, 33, 37, 41)
    ),
    "Write the days of the week, again and again.",
    "Write a short story about a cat.",
    "Name the twelve months, three times.",
)
FOLLOW_UP: Final = "Now explain what you have just written."


@dataclass
class Stream:
    """One request and what the client has of its response."""

    prompt: str
    upstream: str = ""
    """The name of the upstream server, once the headers have arrived."""
    gateway: int = 0
    """The port of the gateway, once the headers have arrived."""
    text: str = ""
    outcome: str = ""
    """Empty while it runs; see `StreamOutcomes`."""
    detail: str = ""
    began_s: float = field(default_factory=time.monotonic)
    killed: str = ""
    """`gateway` or `llama`: which of its processes was killed before the response ended; empty: neither."""


@dataclass
class StreamOutcomes:
    """How many streams ended in which way: `whole`, `different` text, `lost`, `error`, `broken`, `silent`."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By what was killed, and the outcome."""
    details: Counter[str] = field(default_factory=Counter)
    """Why streams did not end as they should."""

    def add(self, stream: Stream) -> None:
        """Counts a stream that has ended."""
        self.counts[stream.killed, stream.outcome] += 1
        if stream.outcome != "whole":
            what = f"{stream.outcome} (killed: {stream.killed or 'nothing'}): {stream.detail[:300]}"
            self.details[what] += 1


class Clients:
    """Clients that stream one response after the other, and clients that continue stored responses."""

    def __init__(self, url: str, key: str) -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        headers = {"authorization": f"Bearer {key}"}
        self._http = httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=TIMEOUT_S, limits=limits, trust_env=False
        )
        self._prompts: Iterator[str] = itertools.cycle(PROMPTS)
        self.references: dict[str, str] = {}
        self.results, self.chains = StreamOutcomes(), Counter[str]()
        self.chain_errors: Counter[str] = Counter()
        self.running: list[Stream] = []
        self._kills: list[tuple[float, str, str | int]] = []
        """Times, and the name or port of what was killed, after its kind."""
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def learn(self, streams: int) -> int:
        """Learns the texts of undisturbed runs; returns how many prompts are left out.

        Near ties of two tokens are decided by the other requests of a batch, so a prompt is used only if all of its
        texts are the same with this many streams at a time.

        Raises: RuntimeError: a request failed.
        """
        texts: dict[str, set[str]] = {}
        for _ in range(LEARNING_RUNS):
            runs = [Stream(prompt) for prompt in itertools.islice(itertools.cycle(PROMPTS), streams)]
            await asyncio.gather(*(self._read(stream) for stream in runs))
            for stream in runs:
                if stream.outcome != "whole":
                    raise RuntimeError(f"undisturbed run of {stream.prompt!r}: {stream.outcome} {stream.detail}")
                texts.setdefault(stream.prompt, set()).add(stream.text)
        self.references = {prompt: text for prompt, (text, *others) in texts.items() if not others}
        self._prompts = itertools.cycle(self.references)
        return len(texts) - len(self.references)

    def start(self, streams: int, chains: int) -> None:
        """Starts the clients.

        Args:
            streams: clients that stream Chat Completions, all the time.
            chains: clients that store a response, and continue it.
        """
        self._tasks += [asyncio.create_task(self._stream_until_stop()) for _ in range(streams)]
        self._tasks += [asyncio.create_task(self._chain_until_stop()) for _ in range(chains)]

    def on_kill(self, kind: str, name: str, port: int) -> None:
        """Notes that a process is killed now.

        Args:
            kind: `llama`, or anything else.
            name: its name, as of an upstream server.
            port: its port.
        """
        self._kills.append((time.monotonic(), kind, name if kind == "llama" else port))

    def cut_by(self, victim: str | int) -> list[Stream]:
        """Returns the running streams that have text of this upstream server, or by the gateway at this port."""
        return [each for each in self.running if each.text and victim in (each.upstream, each.gateway)]

    def _killed(self, stream: Stream) -> str:
        """Returns which of its processes was killed before a stream ended."""
        its = (stream.upstream, stream.gateway)
        return next((kind for at_s, kind, who in reversed(self._kills) if at_s > stream.began_s and who in its), "")

    async def stop(self) -> None:
        """Lets the running requests end."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        await self._http.aclose()

    async def _stream_until_stop(self) -> None:
        while not self._stop.is_set():
            stream = Stream(next(self._prompts))
            self.running.append(stream)
            await self._read(stream)
            self.running.remove(stream)
            stream.killed = self._killed(stream)
            self.results.add(stream)
            await asyncio.sleep(0.2 if stream.outcome == "lost" else 0)

    async def _read(self, stream: Stream) -> None:
        messages = [{"role": "user", "content": stream.prompt}]
        body = {"model": "smollm2", "stream": True, "temperature": 0, "max_tokens": TOKENS, "messages": messages}
        try:
            async with self._http.stream("POST", CHAT, json=body) as response:
                if response.status_code != 200:
                    stream.outcome, stream.detail = "lost", f"{response.status_code} {(await response.aread())[:300]!r}"
                    return
                stream.upstream = response.headers.get("x-dragoman-upstream", "")
                stream.gateway = int(response.headers["x-served-by"].rpartition(":")[2])
                await self._read_events(stream, response)
        except httpx2.HTTPError as error:
            stream.outcome = "broken" if stream.gateway else "lost"
            stream.detail = repr(error)

    async def _read_events(self, stream: Stream, response: httpx2.Response) -> None:
        finished = False
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            if "error" in event:
                stream.outcome, stream.detail = "error", str(event["error"])
                continue
            for choice in event["choices"]:
                stream.text += choice["delta"].get("content") or ""
                finished = finished or bool(choice["finish_reason"])
        if not stream.outcome:
            stream.outcome = self._judge(stream) if finished else "silent"

    def _judge(self, stream: Stream) -> str:
        expected = self.references.get(stream.prompt, stream.text)
        if stream.text == expected:
            return "whole"
        stream.detail = f"expected {expected!r}, got {stream.text!r}"
        return "different"

    async def _chain_until_stop(self) -> None:
        while not self._stop.is_set():
            prompt = next(self._prompts)
            first = await self._respond({"input": prompt, "store": True}, "first response")
            if first is None:
                continue
            second = await self._respond({"input": FOLLOW_UP, "previous_response_id": first["id"]}, "continuation")
            if second is None:
                continue
            read, before = second["usage"]["input_tokens"], first["usage"]
            has_all = read > before["input_tokens"] + before["output_tokens"]
            self.chains["continued" if has_all else "continued without the conversation"] += 1

    async def _respond(self, body: Mapping[str, Any], what: str) -> dict[str, Any] | None:
        """Sends a request until its response is not a 503 with retry-after, and returns its body, None at an error."""
        sent = {"model": "smollm2", "temperature": 0, "max_output_tokens": 24, **body}
        while True:
            try:
                response = await self._http.post(RESPONSES, json=sent)
            except httpx2.HTTPError as error:
                self._note(f"{what}: {type(error).__name__}", repr(error))
                return None
            if response.status_code == 200:
                found: dict[str, Any] = response.json()
                return found
            if response.status_code == 503 and "retry-after" in response.headers:
                self.chains[f"{what}: 503 with retry-after"] += 1
                await asyncio.sleep(min(1.0, float(response.headers["retry-after"])))
                continue
            self._note(f"{what}: status {response.status_code}", response.text)
            return None

    def _note(self, what: str, detail: str) -> None:
        self.chains[what] += 1
        self.chain_errors[f"{what}: {detail[:300]}"] += 1
