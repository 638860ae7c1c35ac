"""The work of a request grows with its length: twice as much of anything in it costs about twice as much.

Each list of each API is doubled, in front of each way of asking a model. What counts is the time of the process, the
least of several, so that other work on the machine changes nothing.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import pytest_asyncio
from msgspec.structs import replace

import cost
import growing
from dragoman import dialects, formats
from dragoman.backends.claude_cli import conversation, single_prompt
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.versions import NATIVE_SINCE
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.config import ServerConfig
from dragoman.core.errors import RequestError
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.exchange import LARGE_BYTES
from dragoman.wire.history import repair_history
from far import Server, server

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
    "prompt_trimmed": {"mode": "inject", "format": "hermes", "trim": "lean"},
}


def template() -> ChatTemplate:
    return ChatTemplate("", "", "<|im_end|>", ("<|im_start|>", "<|im_end|>"))


def prompt(request: Request) -> None:
    """As the embedded model is asked, and completions are."""
    TEMPLATE.render(request, formats.get("hermes"))


TEMPLATE: Final = template()
HERE: Final[dict[str, Callable[[Request], object]]] = {
    "embedded": prompt,
    "claude_cli": lambda request: conversation.to_conversation(request, ModelSpec("m")),
    "claude_cli, in words": lambda request: single_prompt.to_conversation(request, ModelSpec("m"), NATIVE_SINCE),
}


async def plays(server: Server, writer: asyncio.StreamWriter) -> None:
    """Answers any request, whatever its API."""
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


def asked_here(api: str, how: str) -> Callable[[bytes], Awaitable[object]]:
    async def work(body: bytes) -> object:
        request = dialects.get(api).read_request(body)
        request = replace(request, messages=repair_history(request.messages)[0])
        with suppress(RequestError):  # a picture is none of the small models'
            HERE[how](request)
        return None

    return work


ALL: Final = [(api, shape) for api, shapes in growing.SHAPES.items() for shape in shapes]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[dict[str, HttpBackend]]:
    """Each way of asking a server, by its name."""
    async with server(plays) as far:
        url = f"{far.url}/v1"
        yield {
            name: HttpBackend(name, HttpConfig(url=url, models=(name,), retries=0, **more), {})
            for name, more in BEHIND.items()
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(behind: dict[str, HttpBackend]) -> AsyncIterator[App]:
    gateway = Gateway(list(behind.values()))
    await gateway.start()
    yield App(gateway, ServerConfig())
    await gateway.close()


async def check(app: App, api: str, shape: str, how: str, n: int) -> None:
    async def post(body: bytes) -> object:
        return await posted(app, dialects.get(api).path, body)

    def made(n: int) -> bytes:
        return growing.body(api, growing.SHAPES[api][shape], n, model=how)

    work = post if how in BEHIND else asked_here(api, how)
    grows = await cost.doubled(work, made, n, MOST)
    assert grows <= MOST, f"{shape} of {api}, asked by {how}: twice as much costs {grows:.1f} times as much"


@pytest.mark.parametrize(("api", "shape"), ALL)
async def test_twice_as_much_costs_twice_as_much(app: App, api: str, shape: str) -> None:
    """Each list in front of the way of asking whose turn it is, so that all are met; `--every` takes all for each."""
    ways = [*BEHIND, *HERE]
    await check(app, api, shape, ways[ALL.index((api, shape)) % len(ways)], 400)


@pytest.mark.every
@pytest.mark.parametrize("how", [*BEHIND, *HERE])
@pytest.mark.parametrize(("api", "shape"), ALL)
async def test_so_it_is_in_front_of_each(app: App, api: str, shape: str, how: str) -> None:
    await check(app, api, shape, how, 2500)


@pytest.mark.parametrize("how", BEHIND)
async def test_a_large_request_is_written_in_a_thread(
    how: str, app: App, behind: dict[str, HttpBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that others are answered meanwhile; a small one is not, as a thread costs more than that."""
    threads: list[bool] = []
    write = behind[how]._planner.build

    def outgoing(*args: Any, **more: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return write(*args, **more)

    monkeypatch.setattr(behind[how]._planner, "build", outgoing)
    for size in (LARGE_BYTES // 2, LARGE_BYTES):
        said = [{"role": "user", "content": "x" * size}]
        body = {"model": how, "messages": said, "max_tokens": 1, "tools": []}
        assert await posted(app, "/v1/chat/completions", json.dumps(body).encode()) == 200
    assert threads == ([] if how == "trusted" else [False, True])
