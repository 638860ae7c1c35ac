"""Failover between backends with the same model, if one fails before its response has begun."""

import contextlib
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dragoman import config as settings
from dragoman.backends.http import circuit_breaker
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.cli._common import format_settings
from dragoman.core.backend import ExchangeContext, ServedModel
from dragoman.core.errors import (
    ConfigError,
    ContextOverflowError,
    DragomanError,
    QueueFullError,
    RequestError,
    UpstreamError,
)
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from support.events import all_events
from support.fake_upstream import FRONTS, Play, Server, ask, dies, ends_as_failed, server, told, whole
from support.gateway import CHAT
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import Script, Scripted, serving

pytestmark = pytest.mark.asyncio

REFUSED = '{"error": {"message": "the clients words"}}'


class Named(Scripted):
    """A backend with a name, whose model `m` is also called `NAME/m`."""

    def __init__(self, name: str, script: Script) -> None:
        super().__init__(script)
        self.name = name

    def models(self) -> tuple[ServedModel, ...]:
        return (ServedModel("m", aliases=(f"{self.name}/m",)), ServedModel(f"only-{self.name}"))

    def health(self) -> Mapping[str, object]:
        return {"backend": self.name, "ready": True}


def answers(words: str) -> Script:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta(f"{words}, {request.model}")
        yield Finish("stop")

    return script


def fails(error: DragomanError, *, raised: bool = True) -> Script:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        if raised:
            raise error
        yield Failure(error)

    return script


async def answer(backends: list[Scripted], model: str, aliases: dict[str, Any] | None = None) -> list[AnyEvent]:
    gateway = Gateway(backends, aliases)
    await gateway.start()
    return await all_events(gateway.generate(Request(model, ()), ExchangeContext("1", 1, lambda: "x")))


def text(events: list[AnyEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def codes(events: list[AnyEvent]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice) and event.code != "estimated_usage"]


BUSY = QueueFullError("full", retry_after_s=3)


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "told in its stream"])
async def test_alias_fails_over_to_next_model(raised: bool, caplog: pytest.LogCaptureFixture) -> None:
    one, two = Named("one", fails(BUSY, raised=raised)), Named("two", answers("Hello"))
    with caplog.at_level(logging.WARNING, "dragoman.gateway.gateway"):
        events = await answer([one, two], "coder", {"coder": ["one/m", "only-two"]})
    assert text(events) == "Hello, only-two"
    assert (type(events[0]), events[0].model) == (Start, "coder")  # type: ignore[union-attr]
    assert isinstance(events[1], Notice)
    assert (events[1].code, events[1].message) == ("failed_over", "one could not answer (full); two was asked")
    (record,) = caplog.records
    assert record.getMessage() == "one could not answer (full); two is asked for 'only-two'"


async def test_model_name_fails_over_to_next_backend() -> None:
    events = await answer([Named("one", fails(BUSY)), Named("two", answers("Hello"))], "m")
    assert (text(events), codes(events)) == ("Hello, m", ["failed_over"])


async def test_first_working_model_of_alias_responds() -> None:
    one, two = Named("one", answers("Hello")), Named("two", answers("Bye"))
    for aliases in ({"coder": ["one/m", "two/m"]}, {"coder": ["two/m", "one/m"]}):
        events = await answer([one, two], "coder", aliases)
        assert (text(events), codes(events)) == ("Hello, m" if aliases["coder"][0] == "one/m" else "Bye, m", [])


async def test_qualified_model_name_does_not_fail_over() -> None:
    one, two = Named("one", fails(BUSY)), Named("two", answers("Hello"))
    with pytest.raises(QueueFullError):
        await answer([one, two], "one/m")
    assert not two.begun.is_set()


async def test_last_error_is_raised_if_all_backends_fail() -> None:
    one, two = Named("one", fails(BUSY)), Named("two", fails(UpstreamError("no", status=500)))
    with pytest.raises(UpstreamError, match="no"):
        await answer([one, two], "m")


@pytest.mark.parametrize("error", [RequestError("wrong"), ContextOverflowError(5, 4)], ids=lambda e: type(e).__name__)
async def test_request_error_does_not_fail_over(error: DragomanError) -> None:
    one, two = Named("one", fails(error)), Named("two", answers("Hello"))
    with pytest.raises(type(error)):
        await answer([one, two], "m")
    assert not two.begun.is_set()


async def test_started_response_does_not_fail_over() -> None:
    async def breaks(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("It is")
        raise BUSY

    events = await answer([Named("one", breaks), Named("two", answers("Hello"))], "m")
    assert (text(events), events[-1], codes(events)) == ("It is", Failure(BUSY), [])


async def test_model_name_takes_precedence_over_alias_of_other_backend() -> None:
    class Other(Named):
        def models(self) -> tuple[ServedModel, ...]:
            return (ServedModel("one/m"),)

    events = await answer([Named("one", answers("Bye")), Other("two", answers("Hello"))], "one/m")
    assert text(events) == "Hello, one/m"


async def test_alias_with_unknown_model_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"no backend serves 'two/m'.* - at model_aliases.coder"):
        await answer([Named("one", answers("Hello"))], "coder", {"coder": ["one/m", "two/m"]})


# Over HTTP


def behind(name: str, url: str, **settings: Any) -> HttpBackend:
    return HttpBackend(name, HttpConfig(url=f"{url}/v1", **{"models": ("m",), "max_retries": 0, **settings}), {})


@contextlib.asynccontextmanager
async def both(one: Server, two: Server) -> AsyncIterator[str]:
    """The URL of a gateway with both servers as upstreams."""
    async with serving(Gateway([behind("one", one.url), behind("two", two.url)])) as (_, url):
        yield url


@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("play", [whole(500, REFUSED), whole(429, REFUSED, retry_after="60"), whole(200, REFUSED)])
async def test_failing_upstream_fails_over_and_is_reported(
    play: Play, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with server(play) as one, server(whole(200, COMPLETION)) as two, both(one, two) as url:
        found = await ask(url, path, False)
    assert (found.status_code, "Hello" in found.text) == (200, True)
    assert "failed_over: one > two" in found.headers["x-dragoman-warnings"]
    assert "one could not answer (status " in caplog.text
    assert "the clients words" not in caplog.text
    assert (len(one.asked), len(two.asked)) == (1, 1)


@pytest.mark.parametrize(("there", "status"), [((True, False), 200), ((False, False), 503)])
async def test_gateway_is_ready_if_one_backend_is_ready(there: tuple[bool, ...], status: int) -> None:
    class There(Named):
        def health(self) -> Mapping[str, object]:
            return {"backend": self.name, "ready": there[int(self.name)]}

    gateway = Gateway([There(str(n), answers("I")) for n in range(2)])
    async with serving(gateway) as (_, url), http_client() as client:
        assert (await client.get(f"{url}/ready")).status_code == status


async def test_upstream_with_open_circuit_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(500, REFUSED)) as one, server(whole(200, COMPLETION)) as two, both(one, two) as url:
        for _ in range(3):
            assert (await ask(url, CHAT, True)).status_code == 200
    assert (len(one.asked), len(two.asked)) == (1, 3)


async def test_upstreams_with_open_circuits_are_asked_if_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may be back before its cool-down has passed; no request is refused meanwhile."""
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(500, REFUSED)) as one, server(whole(500, REFUSED)) as two, both(one, two) as url:
        assert (await ask(url, CHAT, True)).status_code == 502
        one.play = whole(200, COMPLETION)
        assert (await ask(url, CHAT, True)).status_code == 200
        assert (await ask(url, CHAT, True)).status_code == 200
        two.play = whole(200, COMPLETION)
        one.play = whole(500, REFUSED)
        assert (await ask(url, CHAT, True)).status_code == 200
    assert (len(one.asked), len(two.asked)) == (4, 2)


async def test_only_upstream_with_open_circuit_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(500, REFUSED)) as one, serving(Gateway([behind("one", one.url)])) as (_, url):
        assert [(await ask(url, CHAT, True)).status_code for _ in range(2)] == [502, 503]
    assert len(one.asked) == 1


async def test_unreachable_upstream_is_skipped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with server(whole(200, COMPLETION)) as two:
        backends = [behind("one", nobody, models=()), behind("two", two.url)]
        async with serving(Gateway(backends, {"coder": ["one/m", "two/m"]})) as (_, url):
            assert (await ask(url, CHAT, False, model="coder")).status_code == 200


@pytest.mark.parametrize("path", FRONTS)
async def test_stream_that_breaks_off_does_not_fail_over(path: str) -> None:
    async with server(dies) as one, server(whole(200, COMPLETION)) as two, both(one, two) as url:
        found = await ask(url, path, True)
    assert ends_as_failed(path, found.text)
    assert two.asked == []


@pytest.mark.parametrize(("status", "told_as"), [(400, 400), (413, 413), (422, 400)])
async def test_upstream_request_error_is_returned_without_failover(status: int, told_as: int) -> None:
    async with server(whole(status, REFUSED)) as one, server(whole(200, COMPLETION)) as two, both(one, two) as url:
        found = await ask(url, CHAT, False)
    assert (found.status_code, two.asked) == (told_as, [])
    assert "the clients words" in told(CHAT, found)


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_upstream_auth_or_not_found_error_fails_over(status: int) -> None:
    async with server(whole(status, REFUSED)) as one, server(whole(200, COMPLETION)) as two, both(one, two) as url:
        found = await ask(url, CHAT, False)
    assert found.status_code == 200
    assert "failed_over: one > two" in found.headers["x-dragoman-warnings"]


async def test_last_upstream_error_is_returned_if_all_fail() -> None:
    async with (
        server(whole(500, REFUSED)) as one,
        server(whole(503, REFUSED, retry_after="9")) as two,
        both(one, two) as url,
    ):
        found = await ask(url, CHAT, True)
    assert (found.status_code, found.headers["retry-after"]) == (503, "9")
    assert told(CHAT, found) == "the server answered 503: the clients words"


# In the settings


def loaded(aliases: str, home: Path) -> tuple[settings.Config, dict[str, str]]:
    file = home / "config.toml"
    file.write_text(f'[upstreams.one]\nurl = "http://127.0.0.1:9/v1"\n[model_aliases]\n{aliases}\n')
    return settings.load(file, {}, {})


async def test_alias_with_several_models_is_read_from_file(tmp_path: Path) -> None:
    config, origin = loaded('coder = ["one/m", "two/m"]', tmp_path)
    assert config.model_aliases == {"coder": ("one/m", "two/m")}
    assert 'model_aliases."coder" = ["one/m", "two/m"]  # ' in format_settings(config, origin)


@pytest.mark.parametrize("wrong", ["[]", '["m", 5]', "[true]"])
async def test_invalid_alias_value_is_rejected(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(f"coder = {wrong}", tmp_path)
    words = f"expected the name of a model, or a list of names, got {wrong} - at model_aliases.coder, from "
    assert refused.value.message.startswith(words)
