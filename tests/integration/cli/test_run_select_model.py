"""Model selection of `dragoman run` without --model: the servers that respond on this machine."""

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


def model_list(*models: str) -> Play:
    """The model list of a vLLM server."""
    data = [{"id": id, "object": "model", "owned_by": "vllm", "max_model_len": 4096} for id in models]
    return whole(200, json.dumps({"object": "list", "data": data}))


async def behind(
    monkeypatch: pytest.MonkeyPatch,
    *urls: str,
    gateway: str = "http:0",
    flags: Mapping[str, str] | None = None,
    **more: Any,
) -> SelectedModel:
    """Selects a model with servers at these URLs and a gateway at that port; `flags` are settings."""
    monkeypatch.setattr(discover, "default_ports", lambda: [int(url.rpartition(":")[2]) for url in urls])
    for patience in ("CONNECT_TIMEOUT_S", "IDENTIFY_TIMEOUT_S"):  # generous, for a busy machine
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


async def test_single_model_of_single_server_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list("qwen3")) as one:
        found = await behind(monkeypatch, one.url)
    assert (found.offer.model, found.offer.server) == ("qwen3", "vllm")
    assert found.config.upstreams["vllm"].url == f"{one.url}/v1"
    assert (found.context_window, found.output_tokens) == (4096, 1024)


async def test_trimming_and_context_window_apply_to_discovered_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list("qwen3")) as one:
        found = await behind(monkeypatch, one.url, prompt_trim="aggressive", context_window=2048)
        plain = await behind(monkeypatch, one.url)
    chosen = found.config.upstreams["vllm"]
    assert (chosen.prompt_trim, chosen.context_window, found.context_window) == ("aggressive", 2048, 2048)
    assert plain.config.upstreams["vllm"].prompt_trim == "off"


async def test_trimming_and_context_window_apply_to_configured_server_and_embedded_model(tmp_path: Path) -> None:
    async with server(model_list("m")) as far:
        config = load_settings(tmp_path, f"{far.url}/v1", "[embedded]", "enabled = true", 'model = "smollm2-135m"')
        asked = on("m")._replace(prompt_trim="max", context_window=2048)
        chosen = await select_model(config, {}, asked)
        embedded = await select_model(config, {"embedded.enabled": "file"}, asked._replace(model="smollm2-135m"))
    own, near = chosen.config.upstreams["far"], embedded.config.embedded
    assert (own.prompt_trim, own.context_window) == ("max", 2048)
    assert (near.prompt_trim, near.context_window, embedded.context_window) == ("max", 2048, 2048)


async def test_several_models_are_listed_as_commands_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list("a", "b")) as one, server(model_list("c")) as other:
        with pytest.raises(ConfigError) as told:
            await behind(monkeypatch, one.url, other.url, args=("-p", "two words"))
    assert str(told.value).splitlines()[1:] == [
        f"  dragoman run claude --upstream {one.url}/v1 --model a -- -p 'two words'",
        f"  dragoman run claude --upstream {one.url}/v1 --model b -- -p 'two words'",
        f"  dragoman run claude --upstream {other.url}/v1 --model c -- -p 'two words'",
    ]


async def test_commands_to_type_are_quoted_for_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list("a b", "x; touch pwned #")) as one:
        with pytest.raises(ConfigError) as told:
            await behind(monkeypatch, one.url)
    assert str(told.value).splitlines()[1:] == [
        f"  dragoman run claude --upstream {one.url}/v1 --model 'a b'",
        f"  dragoman run claude --upstream {one.url}/v1 --model 'x; touch pwned #'",
    ]


async def test_commands_to_type_repeat_options_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "a-long-key")
    async with server(model_list("a", "b")) as one:
        options = {"url": f"{one.url}/v1", "api": "openai_responses", "api_key_env": "THE_KEY"}
        flags: dict[str, object] = {f"upstreams.upstream.{name}": value for name, value in options.items()}
        with pytest.raises(ConfigError) as told:
            await behind(monkeypatch, named=True, flags=flags)
    named = f"--upstream {one.url}/v1 --upstream-api openai_responses --api-key-env THE_KEY"
    assert str(told.value).splitlines()[1:] == [f"  dragoman run claude {named} --model {name}" for name in "ab"]
    assert {headers["authorization"] for _, headers, _ in one.asked} == {"Bearer a-long-key"}


@pytest.mark.parametrize("odd", ["a\0b", "\x1b[2J", "two\nlines"])
async def test_model_name_with_control_characters_is_not_offered(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list(odd, "plain")) as one:
        assert (await behind(monkeypatch, one.url)).offer.model == "plain"
    async with server(model_list(odd)) as one:
        with pytest.raises(ConfigError, match=r"no model is loaded at .*, or none by a name that can be typed"):
            await behind(monkeypatch, one.url)
        with pytest.raises(ConfigError, match="no model is listed, or none by a name that can be typed"):
            await behind(monkeypatch, named=True, flags={"upstreams.upstream.url": f"{one.url}/v1"})


async def test_model_is_selected_at_terminal_or_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(offers: Any) -> ModelOption:
        offer: ModelOption = offers[-1]
        return offer

    async with server(model_list("a", "b")) as one:
        assert (await behind(monkeypatch, one.url, ask=last)).offer.model == "b"
        assert (await behind(monkeypatch, one.url, model="a")).offer.model == "a"
        with pytest.raises(ConfigError, match=r"no model 'aa'; did you mean 'a'\?"):
            await behind(monkeypatch, one.url, model="aa")


async def test_context_window_option_overrides_reported_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(model_list("a")) as one:
        assert (await behind(monkeypatch, one.url, context_window=9000)).context_window == 9000


@asynccontextmanager
async def gateway(*models: str, **more: Any) -> AsyncIterator[str]:
    """A running gateway with the models of one upstream server."""
    async with server(model_list(*models)) as far:
        behind = HttpBackend("behind", HttpConfig(url=f"{far.url}/v1", models=models), {})
        async with serving(Gateway([behind]), **more) as (_, url):
            yield url


def at(url: str, *keys: str) -> settings.Config:
    """Settings with the port of this URL and these API keys."""
    return settings.load(None, {}, {"server.port": int(url.rpartition(":")[2]), "server.api_keys": keys})[0]


async def test_running_gateway_is_found_with_its_models() -> None:
    async with gateway("qwen3", api_keys=("a-key-of-its-own",)) as url:
        assert [offer.model for offer in await find_running_gateway(at(url, "a-key-of-its-own"))] == ["qwen3"]


async def test_foreign_server_gets_no_gateway_key() -> None:
    async with server(model_list("qwen3")) as foreign:
        assert await find_running_gateway(at(foreign.url, "a-key-of-its-own")) == []
    assert [line for line, _, _ in foreign.asked] == ["GET / HTTP/1.1"]
    assert "a-key-of-its-own" not in str(foreign.asked)


async def test_running_model_unfit_for_agents_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway("smollm2-135m") as url, server(model_list("qwen3")) as one:
        assert (await behind(monkeypatch, one.url, gateway=url)).offer.model == "qwen3"
        assert capsys.readouterr().err == (
            f"dragoman: skipped smollm2-135m of the gateway at {url}: unsuitable for agents; "
            "select it with --model NAME\n"
        )
        assert (await behind(monkeypatch, one.url, gateway=url, model="smollm2-135m")).offer.url == url
    async with gateway("toy", "smollm2-135m", "qwen3") as url:
        found = await behind(monkeypatch, gateway=url, flags={"model_aliases.toy": "smollm2-135m"})
        assert (found.offer.url, found.offer.model) == (url, "qwen3")
        assert "skipped toy, smollm2-135m of" in capsys.readouterr().err
        found = await behind(monkeypatch, gateway=url, flags={"embedded.model": "qwen3"}, ask=lambda offers: offers[1])
        assert (found.offer.model, capsys.readouterr().err) == ("smollm2-135m", "")


async def test_select_from_running_offers_only_models_of_gateway() -> None:
    wanted = RunOptions("any", (), "", False, False, 0, "", None)
    async with gateway("smollm2-135m") as url:
        config, origin = at(url), dict[str, str]()
        assert (await select_from_running(config, origin, wanted)).offer.url == url
        with pytest.raises(ConfigError, match="no model 'qwen3'; there are"):
            await select_from_running(config, origin, wanted._replace(model="qwen3"))


def unused_url() -> str:
    """The URL of a port of this machine that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def load_settings(tmp_path: Path, url: str, *more: str) -> settings.Config:
    file = tmp_path / "config.toml"
    file.write_text("\n".join([f'[upstreams.far]\nurl = "{url}"\nmodels = ["m"]', *more]))
    return settings.load(file, {}, {})[0]


def on(model: str) -> RunOptions:
    return RunOptions("claude", (), model, named=True, new=True, context_window=8192, prompt_trim="", ask=None)


async def test_configured_server_refusing_connections_ends_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The settings list its models, so no earlier request is sent to it; the agent would retry for minutes."""
    monkeypatch.setattr(preface, "STARTING_S", 0.01)
    url = unused_url()
    with pytest.raises(BackendUnavailableError, match=f"{url}, but the connection is refused; start the server"):
        await select_model(load_settings(tmp_path, url), {}, on("m"))
    assert f"nothing listens at {url} yet" in capsys.readouterr().err


async def test_starting_server_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = unused_url()
    async with AsyncExitStack() as stack:
        port = int(url.removesuffix("/v1").rpartition(":")[2])

        async def starts(_: float) -> None:
            await stack.enter_async_context(server(model_list("m"), port=port))

        monkeypatch.setattr(preface.retry, "sleep", starts)
        found = await select_model(load_settings(tmp_path, url), {}, on("m"))
    assert found.offer.model == "m"


async def test_unreachable_server_with_fallback_is_allowed(tmp_path: Path) -> None:
    config = load_settings(tmp_path, unused_url(), '[model_aliases]\nboth = ["far/m", "claude/opus"]')
    assert (await select_model(config, {}, on("both"))).offer.model == "both"
