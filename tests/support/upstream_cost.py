"""Requests through the application to an upstream of each API, to measure their cost."""

import asyncio
import json
from typing import Any, Final

from dragoman.server.app import App
from support.fake_upstream import Server

SAYS: Final = {
    "/v1/chat/completions": {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]},
    "/v1/completions": {"choices": [{"text": "x", "index": 0, "finish_reason": "stop"}]},
    "/v1/messages": {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"},
    "/v1/responses": {
        "id": "r",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}],
    },
}


BEHIND: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {},
    "openai_responses": {"api": "openai_responses"},
    "anthropic_messages": {"api": "anthropic_messages"},
    "passthrough": {"passthrough": True},
    "parse": {"tool_mode": "parse", "call_format": "hermes"},
    "prompt": {"tool_mode": "prompt", "call_format": "hermes"},
    "prompt_trimmed": {"tool_mode": "prompt", "call_format": "hermes", "prompt_trim": "aggressive"},
}


async def plays(server: Server, writer: asyncio.StreamWriter) -> None:
    """Responds to any request of any API."""
    path = server.asked[-1][0].split()[1]
    server.asked.clear()
    said = json.dumps(
        {"id": "x", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1}, **SAYS.get(path, {})}
    )
    head = (
        f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\nconnection: close\r\n\r\n"
    )
    writer.write((head + said).encode())


async def posted(app: App, path: str, body: bytes) -> int:
    """Posts the body to the application, and returns the status."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    status = 0

    async def receive() -> Any:
        if (message := next(messages, None)) is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"localhost")], "query_string": b""}
    await app(scope, receive, send)
    return status
