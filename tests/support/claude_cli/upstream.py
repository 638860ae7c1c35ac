"""A scripted server with Anthropic's API on loopback.

Source of the shapes: https://docs.anthropic.com/en/api/messages-streaming and /en/api/errors (2026-11).
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

HEADERS: Final = 64 * 1024
PATIENCE_S: Final = 20.0
"""Longer than the CLI needs to read any stream."""
USAGE: Final = {"input_tokens": 12, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 7, "output_tokens": 1}
TOLD: Final = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
"""The error event that breaks a stream."""


@dataclass(frozen=True)
class Reply:
    """The response to one request: a status with a body, or a stream of events."""

    status: int = 200
    body: Any = None
    """The JSON body, if the response is not a stream."""
    events: Sequence[Mapping[str, Any]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    end: str = "whole"
    """How a stream ends: `whole`, `error` (an error event), `cut` (the connection is closed), `reset` (it is reset)
    or `hang` (it stays open and silent)."""


@dataclass(frozen=True)
class Asked:
    """One received request."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Upstream:
    """A running server."""

    replies: Sequence[Reply]
    """In order; the last one is repeated for all later requests."""
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    reply: Reply = Reply()
    """The last reply that was sent."""
    came: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each request."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test once the client has read the stream so far; a break of the stream waits for it."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles one connection with one request."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            reply = self.reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
            self.asked.append(Asked(first.split()[1], headers, json.loads(body or b"null")))
            self.came.set()
            self.heard.clear()
            writer.write(written(reply, bool(self.asked[-1].body and self.asked[-1].body.get("stream"))))
            await writer.drain()
            await self._end(reply, reader, writer)
        writer.close()

    async def _end(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reply.end == "hang":
            await reader.read()
        if reply.end in ("cut", "reset", "error"):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self.heard.wait()
        if reply.end == "error":
            writer.write(chunk(TOLD) + b"0\r\n\r\n")
        if reply.end == "reset":
            writer.transport.abort()


def written(reply: Reply, stream: bool) -> bytes:
    """The bytes of a reply; without streaming, events are collected into one message."""
    if not reply.events or not stream:
        said = json.dumps(message_of(reply.events) if reply.events else reply.body).encode()
        return head(reply, "application/json", {"content-length": str(len(said))}) + said
    end = b"0\r\n\r\n" if reply.end == "whole" else b""
    return head(reply, "text/event-stream", {"transfer-encoding": "chunked"}) + b"".join(map(chunk, reply.events)) + end


def chunk(event: Mapping[str, Any]) -> bytes:
    """One event as an HTTP chunk."""
    said = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(said), said)


def head(reply: Reply, kind: str, more: Mapping[str, str]) -> bytes:
    fields = {"content-type": kind, "request-id": "req_0", "connection": "close", **more, **reply.headers}
    return "".join([f"HTTP/1.1 {reply.status} X\r\n", *(f"{k}: {v}\r\n" for k, v in fields.items()), "\r\n"]).encode()


def message_of(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Collects the events of a stream into a message."""
    message: dict[str, Any] = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                _grow(message["content"][-1], event["delta"])
            case "message_delta":
                message |= event["delta"]
    for block in message["content"]:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"] or "{}")
    return message


def _grow(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, into in (
        ("text", "text"),
        ("thinking", "thinking"),
        ("signature", "signature"),
        ("partial_json", "input"),
    ):
        if name in delta:
            block[into] = (block.get(into) or "") + delta[name]


def message(*blocks: Mapping[str, Any], stop: str = "end_turn", model: str = "m", **more: Any) -> list[dict[str, Any]]:
    """The events of one message, its blocks in deltas of 7 characters."""
    made = {"id": "msg_0", "type": "message", "role": "assistant", "model": model, "content": [], "usage": USAGE}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**made, "stop_reason": None, "stop_sequence": None}},
        {"type": "ping"},
    ]
    for index, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None, **more}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
    return [*events, {"type": "message_stop"}]


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in _cut(block["text"])]
        case "thinking":
            told = [{"type": "thinking_delta", "thinking": t} for t in _cut(block["thinking"])]
            return (
                {"type": "thinking", "thinking": "", "signature": ""},
                [*told, {"type": "signature_delta", "signature": block["signature"]}],
            )
        case _:
            told = [{"type": "input_json_delta", "partial_json": t} for t in _cut(json.dumps(block["input"]))]
            return {**block, "input": {}}, told


def _cut(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def error(status: int, kind: str, words: str, **headers: str) -> Reply:
    """An error of the API; header names have `_` in place of `-`."""
    body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_0"}
    return Reply(status, body, headers={name.replace("_", "-"): value for name, value in headers.items()})


@contextlib.asynccontextmanager
async def upstream(*replies: Reply) -> AsyncIterator[Upstream]:
    """A running server with these replies, which ends with the test."""
    made = Upstream(replies)
    async with await asyncio.start_server(made.answer, "127.0.0.1", 0, limit=HEADERS) as listening:
        made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield made
