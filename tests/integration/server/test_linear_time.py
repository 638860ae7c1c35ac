"""The CPU time of a request is linear in its length: doubling any part of it doubles the cost at most.

Each list of each API is doubled, for each way to send a request to a model. The measure is the minimum CPU time of
the process over several runs, so that other work on the machine does not matter.
"""

import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import pytest
import pytest_asyncio
from msgspec.structs import replace

from dragoman import dialects, formats
from dragoman.backends.claude_cli import conversation, single_prompt
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.versions import NATIVE_SINCE
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.text_mode.chat_template import ChatTemplate
from dragoman.config.server import ServerConfig
from dragoman.core.errors import RequestError
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.schema import adapt
from dragoman.server.app import App
from dragoman.server.exchange import LARGE_BYTES
from dragoman.wire.history import repair_history
from support import cpu_cost, growing_requests
from support.fake_upstream import server
from support.upstream_cost import BEHIND, plays, posted

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST: Final = 2.5
"""Maximum ratio of the CPU time to that of half the input."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[dict[str, HttpBackend]]:
    """Backends for every way to send a request to an upstream, by name."""
    async with server(plays) as far:
        url = f"{far.url}/v1"
        yield {
            name: HttpBackend(name, HttpConfig(url=url, models=(name,), max_retries=0, **more), {})
            for name, more in BEHIND.items()
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(behind: dict[str, HttpBackend]) -> AsyncIterator[App]:
    gateway = Gateway(list(behind.values()))
    await gateway.start()
    yield App(gateway, ServerConfig())
    await gateway.close()


def template() -> ChatTemplate:
    return ChatTemplate("", "", "<|im_end|>", ("<|im_start|>", "<|im_end|>"))


def prompt(request: Request) -> None:
    """Renders the prompt as for the embedded model and for completions."""
    TEMPLATE.render(request, formats.get("hermes"))


TEMPLATE: Final = template()
HERE: Final[dict[str, Callable[[Request], object]]] = {
    "embedded": prompt,
    "claude_cli": lambda request: conversation.to_conversation(request, ModelSpec("m")),
    "claude_cli, in words": lambda request: single_prompt.to_conversation(request, ModelSpec("m"), NATIVE_SINCE),
}


def local_work(api: str, how: str) -> Callable[[bytes], Awaitable[object]]:
    async def work(body: bytes) -> object:
        request = dialects.get(api).read_request(body)
        request = replace(request, messages=repair_history(request.messages)[0])
        with suppress(RequestError):  # small models accept no images
            HERE[how](request)
        return None

    return work


ALL: Final = [(api, shape) for api, shapes in growing_requests.SHAPES.items() for shape in shapes]


@pytest.fixture(autouse=True)
def no_schema_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns off the cache of adapted schemas, so that each request has its full cost."""
    monkeypatch.setattr(adapt, "_CACHED_CHARS", 0)


async def check(app: App, api: str, shape: str, how: str, n: int) -> None:
    async def post(body: bytes) -> object:
        return await posted(app, dialects.get(api).path, body)

    def made(n: int) -> bytes:
        return growing_requests.body(api, growing_requests.SHAPES[api][shape], n, model=how)

    work = post if how in BEHIND else local_work(api, how)
    await work(made(4))  # one-time costs of the first request
    grows = await cpu_cost.doubled(work, made, n, MOST)
    assert grows <= MOST, f"{shape} of {api}, asked by {how}: twice as much costs {grows:.1f} times as much"


@pytest.mark.parametrize(("api", "shape"), ALL)
async def test_request_cost_is_linear(app: App, api: str, shape: str) -> None:
    """Each list is tested with one way to send requests, in rotation; `--every` tests all combinations."""
    ways = [*BEHIND, *HERE]
    await check(app, api, shape, ways[ALL.index((api, shape)) % len(ways)], 400)


@pytest.mark.every
@pytest.mark.parametrize("how", [*BEHIND, *HERE])
@pytest.mark.parametrize(("api", "shape"), ALL)
async def test_request_cost_is_linear_for_every_backend(app: App, api: str, shape: str, how: str) -> None:
    await check(app, api, shape, how, 2500)


@pytest.mark.parametrize("how", BEHIND)
async def test_large_upstream_request_is_written_in_thread(
    how: str, app: App, behind: dict[str, HttpBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests can be served meanwhile; a small request is not, since a thread would cost more."""
    threads: list[bool] = []
    write = behind[how].planner.plan

    def outgoing(*args: Any, **more: Any) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return write(*args, **more)

    monkeypatch.setattr(behind[how].planner, "plan", outgoing)
    for size in (LARGE_BYTES // 2, LARGE_BYTES):
        said = [{"role": "user", "content": "x" * size}]
        body = {"model": how, "messages": said, "max_tokens": 1, "tools": []}
        assert await posted(app, "/v1/chat/completions", json.dumps(body).encode()) == 200
    assert threads == ([] if how == "passthrough" else [False, True])
