"""Clients that stream one response after the other, and what became of the requests."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2

from support.http_client import http_client

TIMEOUT_S = 120.0


@dataclass
class Load:
    """What became of the requests."""

    complete: int = 0
    refused: list[str] = field(default_factory=list)
    """Errors of requests that got no event."""
    cut: list[str] = field(default_factory=list)
    """Errors in mid-stream."""
    running: int = 0
    """Streams that have begun."""
    longest_wait_s: float = 0.0
    """Longest time between two events, or before the first."""
    texts: dict[str, str] = field(default_factory=dict)
    """Complete texts by prompt."""
    continued_prompts: list[str] = field(default_factory=list)
    """Prompts whose responses have the warning `continued`."""

    @property
    def continued(self) -> int:
        return len(self.continued_prompts)


@asynccontextmanager
async def streaming(url: str, model: str, clients: int, max_tokens: int = 60) -> AsyncIterator[Load]:
    """Runs clients until the end of the block, which waits for their last responses.

    Args:
        url: The gateway.
        model: The model.
        clients: Number of clients.
        max_tokens: Length of each response.
    """
    load, stopped = Load(), asyncio.Event()

    async def client(number: int) -> None:
        count = 0
        while not stopped.is_set():
            count += 1
            prompt = f"Tell me story {number}.{count}"
            await ask(http, url, {"model": model, "max_tokens": max_tokens}, prompt, load)

    async with http_client(timeout=TIMEOUT_S) as http, asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
        try:
            yield load
        finally:
            stopped.set()


async def ask(http: httpx2.AsyncClient, url: str, fields: dict[str, object], prompt: str, load: Load) -> None:
    """Streams one response.

    Args:
        http: The client.
        url: The gateway.
        fields: More fields of the request.
        prompt: The prompt.
        load: Receives what became of the request.
    """
    body = {**fields, "stream": True, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
    texts: list[str] = []
    error, is_done, has_begun, last_s = "", False, False, time.monotonic()
    try:
        async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                error = (await response.aread()).decode()
            async for line in response.aiter_lines():
                if line.startswith(": dragoman-warnings") and "continued" in line:
                    load.continued_prompts.append(prompt)
                if not line.startswith("data: "):
                    continue
                load.longest_wait_s = max(load.longest_wait_s, time.monotonic() - last_s)
                last_s = time.monotonic()
                if line == "data: [DONE]":
                    is_done = True
                    continue
                if not has_begun:
                    has_begun = True
                    load.running += 1
                event = json.loads(line[6:])
                error = error or str(event.get("error", ""))
                texts += [choice["delta"].get("content") or "" for choice in event.get("choices", [])]
    except httpx2.HTTPError as failure:
        error = repr(failure)
    load.running -= has_begun
    if is_done and not error:
        load.complete += 1
        load.texts[prompt] = "".join(texts)
    else:
        (load.cut if has_begun else load.refused).append(error or "ended without [DONE]")


async def until(condition: object, load: Load, timeout_s: float = TIMEOUT_S) -> None:
    """Waits until the condition holds.

    Args:
        condition: A function of the load.
        load: The load.
        timeout_s: Time after which the test fails.
    """
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not condition(load):
            await asyncio.sleep(0.05)
