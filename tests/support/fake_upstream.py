"""A scripted upstream server, a gateway in front of it, and requests to that gateway.

client ─HTTP→ gateway ─HTTP→ the server
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support.gateway import CHAT, DEADLINE_S, MESSAGES, shape_of
from support.http_client import http_client
from support.scripted_backend import serving

RESPONSES = "/v1/responses"
FRONTS = [CHAT, MESSAGES, RESPONSES]

Play: TypeAlias = Callable[["Server", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A scripted upstream: each connection is one request, to which `play` responds."""

    play: Play
    url: str = ""
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    """First line, headers and body of each request."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the last client has closed its connection."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test; `play` can wait for it."""
    gateway: str = ""
    """The URL of the gateway."""
    running: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)
    """The connections that are not closed."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.running[task] = writer
        try:
            await self._answer(reader, writer)
        finally:
            del self.running[task]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            self.left = asyncio.Event()
            self.asked.append((line, headers, await reader.readexactly(int(headers.get("content-length", 0)))))
            leaving = asyncio.ensure_future(self._leaving(reader, self.left))
            await self.play(self, writer)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()
            await leaving

    async def _leaving(self, reader: asyncio.StreamReader, left: asyncio.Event) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        left.set()


@contextlib.asynccontextmanager
async def server(play: Play, port: int = 0) -> AsyncIterator[Server]:
    made = Server(play)
    listening = await asyncio.start_server(made.answer, "127.0.0.1", port)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield made
    running = dict(made.running)
    for task, writer in running.items():
        writer.transport.abort()
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def whole(status: int, said: str, kind: str = "application/json", **headers: str) -> Play:
    """A response without streaming."""
    fields = {"content-type": kind, "content-length": str(len(said.encode())), "connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(("\r\n".join(lines) + "\r\n\r\n" + said).encode())

    return play


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"


def piece(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One Chat Completions stream event as an HTTP chunk."""
    told = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    data = f"data: {json.dumps(told)}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def begins(server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + piece({"role": "assistant", "content": "It is"}))
    await writer.drain()


async def dies(server: Server, writer: asyncio.StreamWriter) -> None:
    await begins(server, writer)
    writer.transport.abort()


async def falls_silent(server: Server, writer: asyncio.StreamWriter) -> None:
    await begins(server, writer)
    await server.left.wait()


async def says_nothing(server: Server, writer: asyncio.StreamWriter) -> None:
    await server.left.wait()


@contextlib.asynccontextmanager
async def gateway(url: str, base: str = "/v1", **settings: Any) -> AsyncIterator[str]:
    """The URL of a gateway with this upstream and a model `m`; without retries unless the settings allow them."""
    config = HttpConfig(url=url + base, **{"models": ("m",), "max_retries": 0, **settings})
    async with serving(Gateway([HttpBackend("far", config, {})])) as (_, own):
        yield own


async def ask(url: str, path: str, stream: bool, headers: Any = None, **more: Any) -> httpx2.Response:
    asked = {"model": "m", "stream": stream, **more}
    asked |= (
        {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    )
    async with http_client(url) as client:
        return await client.post(path, json=asked, headers=headers)


def told(path: str, answer: httpx2.Response) -> str:
    return str(shape_of(path, answer.json())["message"])


def ends_as_failed(path: str, stream: str) -> bool:
    *_, before, last = stream.strip().split("\n\n")
    if path == CHAT:
        return last == "data: [DONE]" and before.startswith('data: {"error":')
    return last.startswith("event: error" if path == MESSAGES else "event: response.failed")


async def soon(happens: asyncio.Event) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await happens.wait()
