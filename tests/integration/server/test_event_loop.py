"""The event loop is never blocked for long: not by garbage collection, imports or template rendering."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from bench.loop import Sampler

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support import growing_requests
from support.fake_upstream import server
from support.sampling import sample
from support.upstream_cost import BEHIND, plays, posted

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHATML: Final = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("template") / "template.jinja"
    file.write_text(CHATML)
    return file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind(template: Path) -> AsyncIterator[dict[str, HttpBackend]]:
    """Backends for every way to send a request to an upstream, by name."""
    rendered = {
        "tool_mode": "prompt",
        "call_format": "hermes",
        "endpoint": "completions",
        "chat_template": str(template),
    }
    async with server(plays) as far:
        yield {
            name: HttpBackend(name, HttpConfig(url=f"{far.url}/v1", models=(name,), max_retries=0, **more), {})
            for name, more in (BEHIND | {"completions": rendered}).items()
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(behind: dict[str, HttpBackend]) -> AsyncIterator[App]:
    gateway = Gateway(list(behind.values()))
    await gateway.start()
    yield App(gateway, ServerConfig())
    await gateway.close()


def body(api: str, how: str, **more: Any) -> bytes:
    return growing_requests.body(api, growing_requests.SHAPES[api]["calls"], 1, model=how, **more)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", dialects.names())
async def test_request_creates_no_reference_cycles(
    app: App, behind: dict[str, HttpBackend], api: str, stream: bool
) -> None:
    """Only the garbage collector frees cycles, and its full collections block the event loop."""
    path = dialects.get(api).path
    for how in behind:
        assert await posted(app, path, body(api, how, stream=stream)) == 200  # fills caches
    await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        for how in behind:
            assert await posted(app, path, body(api, how, stream=stream)) == 200
        await asyncio.sleep(0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [
            type(each).__name__ for each in gc.garbage if type(each).__module__.startswith(("dragoman", "_asyncio"))
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []


async def test_prompt_is_rendered_in_thread(
    app: App, behind: dict[str, HttpBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that renders templates may be slow, or busy with another template."""
    path, asked = dialects.get("openai_chat").path, body("openai_chat", "completions")
    assert await posted(app, path, asked) == 200
    threads: list[bool] = []
    template = behind["completions"].planner._templates.get("completions", behind["completions"].config.chat_template)
    render = template._template.render

    def rendered(**variables: Any) -> str:
        threads.append(threading.current_thread() is threading.main_thread())
        return render(**variables)

    monkeypatch.setattr(template._template, "render", rendered)
    assert await posted(app, path, asked) == 200
    assert threads
    assert not any(threads)


_WARM: Final = """
import gc, sys
from dragoman.gateway.gateway import Gateway
from dragoman.server import run
run.warm_up(Gateway([]))
frozen, loaded = gc.get_freeze_count(), set(sys.modules)
import dragoman.guard.guard, dragoman.formats.auto
assert frozen > 10_000, frozen
assert set(sys.modules) == loaded, set(sys.modules) - loaded
"""


async def test_warm_up_imports_modules_needed_by_requests() -> None:
    ran = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _WARM], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


LARGE_BYTES: Final = 400_000
MAX_STEP_SHARE: Final = 0.1
"""Maximum share of a large request's CPU time that one event loop step may take."""


SHAPES: Final = [(api, shape) for api in dialects.names() for shape in ("calls in turns", "one long text")]


@pytest.mark.parametrize(("api", "shape"), sample(SHAPES, 3, "shapes"))
async def test_large_request_does_not_block_event_loop(app: App, api: str, shape: str) -> None:
    """Reading, estimating, converting, storing and writing a large request run in a thread.

    Measured as CPU time of the loop's thread, which other programs and threads do not inflate.
    """
    path, grow = dialects.get(api).path, growing_requests.SHAPES[api].get(shape, long_text(api))
    count = LARGE_BYTES * 100 // len(growing_requests.body(api, grow, 100))
    more = {"store": True} if api == "openai_responses" else {}
    for how in ("openai_chat", "anthropic_messages", "passthrough", "prompt"):
        asked = growing_requests.body(api, grow, count, model=how, stream=True, **more)
        held = await longest_step_share(app, path, asked)
        held = held if held < MAX_STEP_SHARE else await longest_step_share(app, path, asked)
        assert held < MAX_STEP_SHARE, f"the event loop was held for {held:.0%} of the work, asked by {how}"


def long_text(api: str) -> growing_requests.Grow:
    member = "input" if api == "openai_responses" else "messages"
    return lambda n: {member: [{"role": "user", "content": "some text of a file " * n}]}


async def longest_step_share(app: App, path: str, asked: bytes) -> float:
    """The largest share of the process's CPU time that one step of the loop took."""
    gc.collect()
    sampler = Sampler()
    sampler.start()
    try:
        assert await posted(app, path, asked) == 200
    finally:
        held = sampler.stop()
    return (held.loop_s - 0.005) / held.cpu_s  # at least some milliseconds are the test's own
