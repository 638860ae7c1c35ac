"""The work of a request grows with its length: twice as much of anything in it costs about twice as much.

Each list of each API is doubled, in front of each way of asking a model. What counts is the time of the process, the
least of several, so that other work on the machine changes nothing.
"""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

import growing
from dragoman import dialects, formats
from dragoman.backends.claude_cli import as_prompt, conversation
from dragoman.backends.claude_cli.command import Spec
from dragoman.backends.claude_cli.versions import NATIVE_SINCE
from dragoman.backends.http import Http
from dragoman.backends.http_config import HttpConfig
from dragoman.backends.template import ChatTemplate
from dragoman.core.conversation import in_order
from dragoman.core.errors import DragomanError
from dragoman.core.values import Request
from dragoman.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.config import ServerConfig
from far import Server, server

MOST: Final = 2.5
"""Times the work of half as much."""
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
    "trusted": {"trusted": True},
    "parse": {"mode": "parse", "format": "hermes"},
    "inject": {"mode": "inject", "format": "hermes"},
    "trimmed": {"mode": "inject", "format": "hermes", "trim": "lean"},
}


def template() -> ChatTemplate:
    return ChatTemplate("", "", "<|im_end|>", ("<|im_start|>", "<|im_end|>"))


def prompt(request: Request) -> None:
    """As the embedded model is asked, and completions are."""
    TEMPLATE.prompt(request, formats.get("hermes"))


TEMPLATE: Final = template()
HERE: Final[dict[str, Callable[[Request], object]]] = {
    "embedded": prompt,
    "claude_cli": lambda request: conversation.native(request, Spec("m")),
    "claude_cli, in words": lambda request: as_prompt.conversation(request, Spec("m"), NATIVE_SINCE),
}


async def plays(server: Server, writer: asyncio.StreamWriter) -> None:
    """Answers any request, whatever its API."""
    path = server.asked[-1][0].split()[1]
    server.asked.clear()
    said = json.dumps({"id": "x", "model": "m", "usage": {"prompt_tokens": 1, "completion_tokens": 1}, **SAYS[path]})
    head = f"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\nconnection: close\r\n\r\n"
    writer.write((head + said).encode())


async def posted(app: App, path: str, body: bytes) -> int:
    """The status of the answer."""
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


async def least(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Seconds of the process, of the quickest of several."""
    found = []
    for _ in range(times):
        began = time.process_time()
        await work()
        found.append(time.process_time() - began)
    return min(found)


async def grows(work: Callable[[bytes], Awaitable[object]], made: Callable[[int], bytes], n: int) -> float:
    """By which factor the work grows where there is twice as much; where it seems too much, a longer look is taken."""
    some, twice = made(n), made(2 * n)
    factor = float("inf")
    for times in (1, 3, 9):
        one = await least(lambda: work(some), times)
        factor = min(factor, await least(lambda: work(twice), times) / one)
        if factor <= MOST:
            break
    return factor


def here(api: str) -> "Callable[[str], Callable[[bytes], Awaitable[object]]]":
    read = dialects.get(api).read_request

    def of(name: str) -> "Callable[[bytes], Awaitable[object]]":
        async def work(body: bytes) -> object:
            request = read(body)
            messages, _ = in_order(request.messages)
            try:
                return HERE[name](Request(**{f: getattr(request, f) for f in request.__struct_fields__} | {"messages": messages}))
            except DragomanError:
                return None

        return work

    return of
