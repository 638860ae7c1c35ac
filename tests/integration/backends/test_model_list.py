"""The model list of a server is refreshed, and parameters that a model has rejected are remembered for a while."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dragoman.backends.http import model_list
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_list import RETRY_INTERVAL_S, ModelList
from dragoman.backends.http.planning import unsupported_params
from dragoman.backends.http.planning.unsupported_params import REJECTION_TTL_S, UnsupportedParams
from dragoman.wire.dialect import UpstreamRequest
from support.clock import Clock
from support.fake_upstream import Play, Server, ask, gateway, server, told, whole
from support.gateway import CHAT, MESSAGES
from support.refusing_upstream import COMPLETION, picky
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio


def lists(*ids: str) -> Play:
    """Lists these models, and responds to requests for any model."""
    listed = whole(200, json.dumps({"data": [{"id": id} for id in ids]}))

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        line, *_ = server.asked[-1]
        await (listed if line.startswith("GET") else whole(200, COMPLETION))(server, writer)

    return play


def times_listed(behind: Server) -> int:
    return sum(line.startswith("GET") for line, _, _ in behind.asked)


@contextlib.asynccontextmanager
async def started_list(behind: Server, clock: Clock) -> AsyncIterator[ModelList]:
    connection = UpstreamConnection("far", HttpConfig(url=behind.url), {}, versioned=True, key="")
    await connection.start()
    made = ModelList("far", connection, clock)
    try:
        await made.start()
        yield made
    finally:
        await made.close()
        await connection.close()


async def test_model_list_is_refreshed_at_most_once_per_retry_interval() -> None:
    clock = Clock()
    async with server(lists("one")) as behind, started_list(behind, clock) as models:
        assert models.ids == ("one",)
        behind.play = lists("one", "two")
        clock.s += RETRY_INTERVAL_S - 0.1
        await models.refresh()
        assert (models.ids, times_listed(behind)) == (("one",), 1)
        clock.s += 0.2
        await asyncio.gather(*(models.refresh() for _ in range(9)))
        assert (models.ids, times_listed(behind)) == (("one", "two"), 2)


async def test_failed_refresh_keeps_previous_model_list() -> None:
    clock = Clock()
    async with server(lists("one")) as behind, started_list(behind, clock) as models:
        behind.play = whole(500, "{}")
        clock.s += RETRY_INTERVAL_S
        await models.refresh()
        assert (models.ids, times_listed(behind)) == (("one",), 2)


async def test_cancelled_waiter_does_not_cancel_refresh() -> None:
    clock = Clock()

    async def waits(server: Server, writer: asyncio.StreamWriter) -> None:
        await server.go.wait()
        await lists("two")(server, writer)

    async with server(lists("one")) as behind, started_list(behind, clock) as models:
        behind.play = waits
        clock.s += RETRY_INTERVAL_S
        first, second = asyncio.ensure_future(models.refresh()), asyncio.ensure_future(models.refresh())
        await eventually(lambda: times_listed(behind) == 2)
        first.cancel()
        behind.go.set()
        await second
        assert models.ids == ("two",)


async def test_model_list_is_refreshed_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_list, "REFRESH_INTERVAL_S", 0.01)
    async with server(lists("one")) as behind, started_list(behind, Clock()) as models:
        behind.play = lists("two")
        await eventually(lambda: models.ids == ("two",))


async def test_unknown_model_triggers_refresh_and_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_list, "RETRY_INTERVAL_S", 0.0)
    async with server(lists("one")) as behind, gateway(behind.url, models=()) as url:
        unknown = await ask(url, CHAT, False, model="two")
        assert (unknown.status_code, "unknown model 'two'" in told(CHAT, unknown)) == (404, True)
        behind.play = lists("one", "two")
        for path in (CHAT, MESSAGES):
            assert (await ask(url, path, False, model="two")).status_code == 200
    assert times_listed(behind) == 3, "at the start, and once for each that was not known"


# Rejected parameters

TEMPERATURE = "Unsupported value: 'temperature' does not support 0.2 with this model."
TOP_K = "property 'top_k' is unsupported"


def asked(**settings: float) -> UpstreamRequest:
    return UpstreamRequest(json.dumps(settings).encode(), ())


def remembered_rejections(clock: Clock, *words: str) -> UnsupportedParams:
    made, before = UnsupportedParams(clock), asked(temperature=0.2, top_k=5)
    for said in words:
        made.remember("m", said, before, unsupported_params.remove_rejected_param(before, said))
    return made


async def test_remembered_parameter_is_dropped_and_reported() -> None:
    heeded = remembered_rejections(Clock(), TOP_K).apply_known("m", asked(top_k=7, seed=1))
    assert json.loads(heeded.body) == {"seed": 1}
    assert [w.message for w in heeded.warnings] == ["the server does not accept top_k with this model"]


async def test_rejection_is_remembered_by_value_and_model() -> None:
    known = remembered_rejections(Clock(), TEMPERATURE, TOP_K)
    assert json.loads(known.apply_known("m", asked(temperature=1)).body) == {"temperature": 1}
    assert json.loads(known.apply_known("m", asked(temperature=0.2)).body) == {}
    assert json.loads(known.apply_known("other", asked(temperature=0.2)).body) == {"temperature": 0.2}


async def test_rejection_expires() -> None:
    clock = Clock()
    known = remembered_rejections(clock, TOP_K)
    clock.s += REJECTION_TTL_S
    assert json.loads(known.apply_known("m", asked(top_k=7)).body) == {"top_k": 7}


async def test_number_of_remembered_rejections_is_bounded() -> None:
    known = UnsupportedParams(Clock())
    for number in range(300):
        known.remember(f"m{number}", TOP_K, asked(top_k=1), asked())
    assert json.loads(known.apply_known("m0", asked(top_k=7)).body) == {"top_k": 7}
    assert json.loads(known.apply_known("m299", asked(top_k=7)).body) == {}


async def test_rejected_parameters_are_not_sent_again() -> None:
    settings = {"temperature": 0.2, "top_k": 5}
    async with server(picky(COMPLETION)) as behind, gateway(behind.url) as url:
        for _ in range(3):
            answer = await ask(url, MESSAGES, False, **settings)
            assert answer.status_code == 200
            assert (
                answer.headers["x-dragoman-warnings"]
                == "content_dropped: temperature, content_dropped: top_k, estimated_usage"
            )
    first, *others = [json.loads(body) for _, _, body in behind.asked]
    assert len(others) == 3 + 2, "without each of three settings in turn, then twice without all of them"
    assert {"temperature", "top_k", "max_tokens"} <= first.keys()
    assert not {"temperature", "top_k", "max_tokens"} & others[-1].keys()
