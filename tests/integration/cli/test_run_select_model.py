"""On what a run runs, where nothing is named: the servers that answer on this machine."""

import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import config as settings
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import discover
from dragoman.cli.run import preface
from dragoman.cli.run.select_model import (
    ModelOption,
    RunOptions,
    SelectedModel,
    find_running_gateway,
    select_from_running,
    select_model,
)
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import Play, server, whole
from support.gateway import DEADLINE_S
from support.scripted_backend import serving


def listing(*models: str) -> Play:
    """A server of a known kind."""
    data = [{"id": id, "object": "model", "owned_by": "vllm", "max_model_len": 4096} for id in models]
    return whole(200, json.dumps({"object": "list", "data": data}))


async def behind(
    monkeypatch: pytest.MonkeyPatch,
    *urls: str,
    gateway: str = "http:0",
    flags: Mapping[str, str] | None = None,
    **more: Any,
) -> SelectedModel:
    """What is chosen where servers are at these URLs, and a gateway at that port; `flags` are settings."""
    monkeypatch.setattr(discover, "default_ports", lambda: [int(url.rpartition(":")[2]) for url in urls])
    for patience in ("CONNECT_TIMEOUT_S", "IDENTIFY_TIMEOUT_S"):  # of a busy machine
        monkeypatch.setattr(discover, patience, DEADLINE_S)
    config, origin = settings.load(None, {}, {"server.port": int(gateway.rpartition(":")[2]), **(flags or {})})
    plainly = {
        "agent": "claude",
        "args": (),
        "model": "",
        "named": False,
        "new": False,
        "context_window": 0,
        "prompt_trim": "",
    }
    return await select_model(config, origin, RunOptions(**{**plainly, "ask": None, **more}))


async def test_the_one_model_of_the_one_server_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(listing("qwen3")) as one:
        found = await behind(monkeypatch, one.url)
    assert (found.offer.model, found.offer.server) == ("qwen3", "vllm")
    assert found.config.upstreams["vllm"].url == f"{one.url}/v1"
    assert (found.context_window, found.output_tokens) == (4096, 1024)


async def test_the_lines_to_type_name_each_model_of_each_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(listing("a", "b")) as one, server(listing("c")) as other:
        with pytest.raises(ConfigError) as told:
            await behind(monkeypatch, one.url, other.url, args=("-p", "two words"))
    assert str(told.value).splitlines()[1:] == [
        f"  dragoman run claude --upstream {one.url}/v1 --model a -- -p 'two words'",
        f"  dragoman run claude --upstream {one.url}/v1 --model b -- -p 'two words'",
        f"  dragoman run claude --upstream {other.url}/v1 --model c -- -p 'two words'",
    ]


async def test_the_lines_to_type_are_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(listing("a b", "x; touch pwned #")) as one:
        with pytest.raises(ConfigError) as told:
            await behind(monkeypatch, one.url)
    assert str(told.value).splitlines()[1:] == [
        f"  dragoman run claude --upstream {one.url}/v1 --model 'a b'",
        f"  dragoman run claude --upstream {one.url}/v1 --model 'x; touch pwned #'",
    ]


@pytest.mark.parametrize("odd", ["a\0b", "\x1b[2J", "two\nlines"])
async def test_a_name_with_control_characters_is_no_offer(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(listing(odd, "plain")) as one:
        assert (await behind(monkeypatch, one.url)).offer.model == "plain"
    async with server(listing(odd)) as one:
        with pytest.raises(ConfigError, match=r"no model is loaded at .*, or none by a name that can be typed"):
            await behind(monkeypatch, one.url)
        with pytest.raises(ConfigError, match="no model is listed, or none by a name that can be typed"):
            await behind(monkeypatch, named=True, flags={"upstreams.upstream.url": f"{one.url}/v1"})


async def test_at_a_terminal_one_is_chosen_and_a_name_chooses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(offers: Any) -> ModelOption:
        offer: ModelOption = offers[-1]
        return offer

    async with server(listing("a", "b")) as one:
        assert (await behind(monkeypatch, one.url, ask=last)).offer.model == "b"
        assert (await behind(monkeypatch, one.url, model="a")).offer.model == "a"
        with pytest.raises(ConfigError, match=r"no model 'aa'; did you mean 'a'\?"):
            await behind(monkeypatch, one.url, model="aa")


async def test_what_was_said_of_the_context_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(listing("a")) as one:
        assert (await behind(monkeypatch, one.url, context_window=9000)).context_window == 9000


@asynccontextmanager
async def gateway(*models: str, **more: Any) -> AsyncIterator[str]:
    """One that runs, with models of a server behind it."""
    async with server(listing(*models)) as far:
        behind = HttpBackend("behind", HttpConfig(url=f"{far.url}/v1", models=models), {})
        async with serving(Gateway([behind]), **more) as (_, url):
            yield url


def at(url: str, *keys: str) -> settings.Config:
    """Settings of a gateway at this port."""
    return settings.load(None, {}, {"server.port": int(url.rpartition(":")[2]), "server.api_keys": keys})[0]


async def test_a_gateway_that_runs_is_known_whatever_is_behind_it() -> None:
    async with gateway("qwen3", api_keys=("a-key-of-its-own",)) as url:
        assert [offer.model for offer in await find_running_gateway(at(url, "a-key-of-its-own"))] == ["qwen3"]


async def test_what_is_no_gateway_is_told_no_key_of_one() -> None:
    async with server(listing("qwen3")) as foreign:
        assert await find_running_gateway(at(foreign.url, "a-key-of-its-own")) == []
    assert [line for line, _, _ in foreign.asked] == ["GET / HTTP/1.1"]
    assert "a-key-of-its-own" not in str(foreign.asked)


async def test_a_running_model_that_is_not_fit_for_agents_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway("smollm2-135m") as url, server(listing("qwen3")) as one:
        assert (await behind(monkeypatch, one.url, gateway=url)).offer.model == "qwen3"
        assert capsys.readouterr().err == (
            f"dragoman: passed over smollm2-135m of the gateway at {url}: not fit for agents; "
            "--model NAME takes it all the same\n"
        )
        assert (await behind(monkeypatch, one.url, gateway=url, model="smollm2-135m")).offer.url == url
    async with gateway("toy", "smollm2-135m", "qwen3") as url:
        found = await behind(monkeypatch, gateway=url, flags={"model_aliases.toy": "smollm2-135m"})
        assert (found.offer.url, found.offer.model) == (url, "qwen3")
        assert "passed over toy, smollm2-135m of" in capsys.readouterr().err
        found = await behind(monkeypatch, gateway=url, flags={"embedded.model": "qwen3"}, ask=lambda offers: offers[1])
        assert (found.offer.model, capsys.readouterr().err) == ("smollm2-135m", "")


async def test_what_wires_to_the_gateway_that_runs_takes_what_it_has() -> None:
    wanted = RunOptions("any", (), "", False, False, 0, "", None)
    async with gateway("smollm2-135m") as url:
        config, origin = at(url), dict[str, str]()
        assert (await select_from_running(config, origin, wanted)).offer.url == url
        with pytest.raises(ConfigError, match="no model 'qwen3'; there are"):
            await select_from_running(config, origin, wanted._replace(model="qwen3"))


def nobody() -> str:
    """The URL of a port of this machine that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def of_settings(tmp_path: Path, url: str, *more: str) -> settings.Config:
    file = tmp_path / "config.toml"
    file.write_text("\n".join([f'[upstreams.far]\nurl = "{url}"\nmodels = ["m"]', *more]))
    return settings.load(file, {}, {})[0]


def on(model: str) -> RunOptions:
    return RunOptions("claude", (), model, named=True, new=True, context_window=8192, prompt_trim="", ask=None)


async def test_a_configured_server_that_refuses_connections_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings list its models, so nothing else asks it before the agent, which would try again for minutes."""
    monkeypatch.setattr(preface, "STARTING_S", 0.01)
    url = nobody()
    with pytest.raises(BackendUnavailableError, match=f"{url}, but the connection is refused; start the server"):
        await select_model(of_settings(tmp_path, url), {}, on("m"))
    assert f"nothing listens at {url} yet" in capsys.readouterr().err


async def test_a_server_that_is_being_started_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = nobody()
    async with AsyncExitStack() as stack:
        port = int(url.removesuffix("/v1").rpartition(":")[2])

        async def starts(_: float) -> None:
            await stack.enter_async_context(server(listing("m"), port=port))

        monkeypatch.setattr(preface.retry, "sleep", starts)
        found = await select_model(of_settings(tmp_path, url), {}, on("m"))
    assert found.offer.model == "m"


async def test_a_server_with_others_to_take_its_place_may_be_down(tmp_path: Path) -> None:
    config = of_settings(tmp_path, nobody(), '[model_aliases]\nboth = ["far/m", "claude/opus"]')
    assert (await select_model(config, {}, on("both"))).offer.model == "both"
