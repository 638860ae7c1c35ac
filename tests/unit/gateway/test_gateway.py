"""From request to events: backend selection, and rules that every response has to follow."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dragoman.config.server import ServerConfig
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
from support.events import all_events
from support.gateway import CHAT
from support.scripted_backend import Script, Scripted, body, plain, served


async def events_of(backend: Scripted, model: str = "m") -> list[AnyEvent]:
    counter = itertools.count()
    request = Request(model=model, messages=())
    context = ExchangeContext("1", 1, lambda: str(next(counter)))
    async with contextlib.aclosing(Gateway([backend]).generate(request, context)) as events:
        return await all_events(events)


async def test_events_after_finish_are_dropped() -> None:
    async def continue_after_finish(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield UsageUpdate(Usage(3, 1))
        yield Finish("stop")
        yield TextDelta("more")

    backend = Scripted(continue_after_finish)
    assert [type(e) for e in await events_of(backend)] == [Start, UsageUpdate, Notice, Finish]
    assert backend.over.is_set()


async def test_backend_gets_its_own_model_name() -> None:
    asked = []

    async def record_model(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request.model)
        yield Start("", "", 0)
        yield Finish("stop")

    first, *_ = await events_of(Scripted(record_model), "n")
    assert asked == ["m"]
    assert isinstance(first, Start)
    assert first.model == "n"


async def test_unknown_model_is_reported() -> None:
    with pytest.raises(DragomanError, match="unknown model 'x'; available: 'm'"):
        await events_of(Scripted(plain), "x")


async def fail_before_start(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Failure(BackendUnavailableError("it died"))


async def end_without_events(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    for event in ():
        yield event


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("script", "words"), [(fail_before_start, "it died"), (end_without_events, "ended without finishing")]
)
async def test_failure_before_start_is_http_error(script: Script, words: str, stream: bool) -> None:
    with pytest.raises(BackendUnavailableError, match=words):
        await events_of(Scripted(script))
    async with served(script) as s, s.client() as client:
        answer = await client.post(CHAT, json=body(stream))
        assert answer.status_code == 503
        assert words in answer.json()["error"]["message"]


async def call_twice(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    for index in range(2):
        yield ToolCallStart(index, f"call_{index}", "f")
        yield ToolCallDelta(index, f'{{"n":{index}}}')
        yield ToolCallEnd(index)
    yield UsageUpdate(Usage(3, 1))
    yield Finish("tool_calls")


@pytest.mark.parametrize("parallel", [False, True])
async def test_second_call_is_dropped_without_parallel_calls(parallel: bool) -> None:
    request = Request("m", (), (Tool("f"),), ToolChoice(parallel_tool_calls=parallel))
    async with contextlib.aclosing(
        Gateway([Scripted(call_twice)]).generate(request, ExchangeContext("1", 1, str))
    ) as events:
        came = await all_events(events)
    calls = [e.index for e in came if isinstance(e, ToolCallStart | ToolCallEnd)]
    assert calls == ([0, 0, 1, 1] if parallel else [0, 0])
    told = [(e.code, e.raw) for e in came if isinstance(e, Notice)]
    assert told == ([] if parallel else [("extra_call_dropped", 'f {"n":1}')])


async def test_all_model_names_and_aliases_are_listed() -> None:
    async with served(plain) as s, s.client() as client:
        listed = (await client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["m", "n", "alias"]
        assert listed["last_id"] == "alias"
        for name in ("m", "n", "alias"):
            one = (await client.get(f"/v1/models/{name}")).json()
            assert (one["id"], one["object"], one["type"], one["context_length"]) == (name, "model", "model", 100)
        assert (await client.get("/v1/models/none")).status_code == 404


async def test_alias_of_unknown_model_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"no backend serves 'mm'; did you mean 'm'\? served: 'm', 'n' - at model_aliases.gpt"
    ):
        await Gateway([Scripted(plain)], {"gpt": "mm"}).start()
    await Gateway([Scripted(plain)], {"gpt": "n"}).start()


class UnlistedModels(Scripted):
    """A backend that serves models that it does not list."""

    def resolve_model_name(self, name: str) -> str | None:
        return name.removeprefix("x/") if "claude-" in name else None


async def test_unlisted_model_name_is_routed_to_backend_that_resolves_it() -> None:
    """Listed models take precedence, also under the name that the API's clients use for them."""
    listing, taking = Scripted(plain, ["qwen"]), UnlistedModels(plain, ["haiku"])
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
        planned = gateway.routes(Request(name, (), dialect=dialect))
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
async def test_app_is_mounted_below_root_path(root_path: str, path: str, status: int) -> None:
    told: list[Any] = []

    async def send(message: Any) -> None:
        told.append(message)

    app = App(Gateway([Scripted(plain)]), ServerConfig())
    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "root_path": root_path, "path": path, "headers": headers}
    await app(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
    assert told[0]["status"] == status


async def test_failed_startup_is_reported_to_asgi_server() -> None:
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
