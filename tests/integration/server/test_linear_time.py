"""The work of a request grows with its length: twice as much of anything in it costs about twice as much.

Each list of each API is doubled, in front of each way of asking a model. What counts is the time of the process, the
least of several, so that other work on the machine changes nothing.
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
from dragoman.config import ServerConfig
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
"""Times the work of half as much."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[dict[str, HttpBackend]]:
    """Each way of asking a server, by its name."""
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
    """As the embedded model is asked, and completions are."""
    TEMPLATE.render(request, formats.get("hermes"))


TEMPLATE: Final = template()
HERE: Final[dict[str, Callable[[Request], object]]] = {
    "embedded": prompt,
    "claude_cli": lambda request: conversation.to_conversation(request, ModelSpec("m")),
    "claude_cli, in words": lambda request: single_prompt.to_conversation(request, ModelSpec("m"), NATIVE_SINCE),
}


def asked_here(api: str, how: str) -> Callable[[bytes], Awaitable[object]]:
    async def work(body: bytes) -> object:
        request = dialects.get(api).read_request(body)
        request = replace(request, messages=repair_history(request.messages)[0])
        with suppress(RequestError):  # a picture is none of the small models'
            HERE[how](request)
        return None

    return work


ALL: Final = [(api, shape) for api, shapes in growing_requests.SHAPES.items() for shape in shapes]


@pytest.fixture(autouse=True)
def no_schema_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small schemas are adapted once and kept; here each request costs what it takes."""
    monkeypatch.setattr(adapt, "_CACHED_CHARS", 0)


async def check(app: App, api: str, shape: str, how: str, n: int) -> None:
    async def post(body: bytes) -> object:
        return await posted(app, dialects.get(api).path, body)

    def made(n: int) -> bytes:
        return growing_requests.body(api, growing_requests.SHAPES[api][shape], n, model=how)

    work = post if how in BEHIND else asked_here(api, how)
    await work(made(4))  # What only the first request costs.
    grows = await cpu_cost.doubled(work, made, n, MOST)
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
    assert threads == ([] if how == "passthrough" else [False, True])
