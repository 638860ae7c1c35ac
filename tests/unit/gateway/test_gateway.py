"""From request to events: which backend is asked, and what every answer is held to."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dragoman.config import ServerConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError, ConfigError, DragomanError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Tool, ToolChoice, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support.gateway import CHAT
from support.scripted_backend import Script, Scripted, body, plain, served


async def events_of(backend: Scripted, model: str = "m") -> list[AnyEvent]:
    counter = itertools.count()
    request = Request(model=model, messages=())
    context = ExchangeContext("1", 1, lambda: str(next(counter)))
    async with contextlib.aclosing(Gateway([backend]).generate(request, context)) as events:
        return [event async for event in events]


async def test_nothing_follows_the_end_of_an_answer() -> None:
    async def talking_on(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield UsageUpdate(Usage(3, 1))
        yield Finish("stop")
        yield TextDelta("more")

    backend = Scripted(talking_on)
    assert [type(e) for e in await events_of(backend)] == [Start, UsageUpdate, Notice, Finish]
    assert backend.over.is_set()


async def test_a_backend_is_asked_under_its_own_name() -> None:
    asked = []

    async def remembering(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request.model)
        yield Start("", "", 0)
        yield Finish("stop")

    first, *_ = await events_of(Scripted(remembering), "n")
    assert asked == ["m"]
    assert isinstance(first, Start)
    assert first.model == "n"


async def test_a_model_nobody_has() -> None:
    with pytest.raises(DragomanError, match="unknown model 'x'; available: 'm'"):
        await events_of(Scripted(plain), "x")


async def dying(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Failure(BackendUnavailableError("it died"))


async def saying_nothing(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    for event in ():
        yield event


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("script", "words"), [(dying, "it died"), (saying_nothing, "ended without finishing")])
async def test_an_end_before_the_start_is_a_real_error(script: Script, words: str, stream: bool) -> None:
    with pytest.raises(BackendUnavailableError, match=words):
        await events_of(Scripted(script))
    async with served(script) as s, s.client() as client:
        answer = await client.post(CHAT, json=body(stream))
        assert answer.status_code == 503
        assert words in answer.json()["error"]["message"]


async def calling_twice(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    for index in range(2):
        yield ToolCallStart(index, f"call_{index}", "f")
        yield ToolCallDelta(index, f'{{"n":{index}}}')
        yield ToolCallEnd(index)
    yield UsageUpdate(Usage(3, 1))
    yield Finish("tool_calls")


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_second_call_is_dropped_where_one_was_asked_for(parallel: bool) -> None:
    request = Request("m", (), (Tool("f"),), ToolChoice(parallel_tool_calls=parallel))
    async with contextlib.aclosing(
        Gateway([Scripted(calling_twice)]).generate(request, ExchangeContext("1", 1, str))
    ) as events:
        came = [event async for event in events]
    calls = [e.index for e in came if isinstance(e, ToolCallStart | ToolCallEnd)]
    assert calls == ([0, 0, 1, 1] if parallel else [0, 0])
    told = [(e.code, e.raw) for e in came if isinstance(e, Notice)]
    assert told == ([] if parallel else [("extra_call_dropped", 'f {"n":1}')])


async def test_every_name_that_can_be_asked_for_is_listed() -> None:
    async with served(plain) as s, s.client() as client:
        listed = (await client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["m", "n", "alias"]
        assert listed["last_id"] == "alias"
        for name in ("m", "n", "alias"):
            one = (await client.get(f"/v1/models/{name}")).json()
            assert (one["id"], one["object"], one["type"], one["context_length"]) == (name, "model", "model", 100)
        assert (await client.get("/v1/models/none")).status_code == 404


async def test_an_alias_of_a_model_that_nobody_serves() -> None:
    with pytest.raises(
        ConfigError, match=r"no backend serves 'mm'; did you mean 'm'\? served: 'm', 'n' - at model_aliases.gpt"
    ):
        await Gateway([Scripted(plain)], {"gpt": "mm"}).start()
    await Gateway([Scripted(plain)], {"gpt": "n"}).start()


class Taker(Scripted):
    """Has more models than it lists."""

    def resolve_model_name(self, name: str) -> str | None:
        return name.removeprefix("x/") if "claude-" in name else None


async def test_a_name_that_nobody_lists_is_for_who_takes_it() -> None:
    """What is listed comes first, also by the name that the API's own clients know it by."""
    listing, taking = Scripted(plain, ["qwen"]), Taker(plain, ["haiku"])
    gateway = Gateway([listing, taking], {"best": ("claude-opus-9", "qwen"), "other": "x/claude-opus-9"})
    await gateway.start()
    for name, dialect, meant in [
        ("claude-opus-9", "", [(taking, "claude-opus-9")]),
        ("x/claude-opus-9", "openai_chat", [(taking, "claude-opus-9")]),
        ("claude-qwen", "anthropic_messages", [(listing, "qwen")]),
        ("claude-qwen", "openai_chat", [(taking, "claude-qwen")]),
        ("best", "openai_chat", [(taking, "claude-opus-9"), (listing, "qwen")]),
        ("other", "", [(taking, "claude-opus-9")]),
    ]:
        planned = gateway.route(Request(name, (), dialect=dialect))
        assert [(backend, request.model) for backend, request in planned] == meant, name
    assert {"best", "other"} <= {model.id for model in gateway.models()}
    with pytest.raises(ConfigError, match="no backend serves 'gpt'"):
        await Gateway([listing, taking], {"best": "gpt"}).start()


@pytest.mark.parametrize(
    ("root_path", "path", "status"),
    [
        ("", "/v1/models", 200),
        ("/llm", "/llm/v1/models", 200),
        ("/llm/", "/llm/v1/models/m", 200),
        ("/llm", "/llm", 200),
        ("/llm", "/llmv1/models", 404),
        ("/llm", "/v1/models", 200),
    ],
)
async def test_mounted_below_a_path(root_path: str, path: str, status: int) -> None:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    app = App(Gateway([Scripted(plain)]), ServerConfig())
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "root_path": root_path, "path": path, "headers": headers}
    await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
    assert told[0]["status"] == status


async def test_start_that_fails_is_told_to_the_host_of_the_application() -> None:
    class Failing(Scripted):
        async def start(self) -> None:
            raise BackendUnavailableError("no weights")

    app = App(Gateway([Failing(plain)]), ServerConfig())
    came: asyncio.Queue[Any] = asyncio.Queue()
    came.put_nowait({"type": "lifespan.startup"})
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    await app({"type": "lifespan"}, came.get, send)
    assert told == [{"type": "lifespan.startup.failed", "message": "no weights"}]
