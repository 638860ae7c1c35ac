"""`dragoman serve` with an upstream server, set by options or the config file, up to a client's tool call."""

import json
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from dragoman import cli, dialects
from dragoman.cli._common import upstream_flags
from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, ToolResult, Usage
from support.gateway import DEADLINE_S, Defaults, apart, running, until
from support.gateway import run as command
from support.scripted_backend import Scripted, in_thread

pytestmark = pytest.mark.serve
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def weather(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """Calls the offered tool; once there is a tool result, repeats it as text."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    yield Start("", "", 0)
    if results:
        yield TextDelta(f"It is {results[-1].parts[0].text}.")  # type: ignore[union-attr]
    else:
        yield ToolCallStart(0, "functions.weather:0", request.tools[0].name)
        yield ToolCallDelta(0, '{"city":"Bern"}')
        yield ToolCallEnd(0)
    yield UsageUpdate(Usage(20, 5))
    yield Finish("stop")


async def searches(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    """Calls the offered function `web_search`; once there is a tool result, repeats it as text."""
    results = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    yield Start("", "", 0)
    if results:
        yield TextDelta(results[-1].parts[0].text)  # type: ignore[union-attr]
    else:
        assert [(tool.name, tool.kind) for tool in request.tools] == [("web_search", "function")]
        yield ToolCallStart(0, "call_0", "web_search")
        yield ToolCallDelta(0, '{"query":"zebras"}')
        yield ToolCallEnd(0)
    yield UsageUpdate(Usage(20, 5))
    yield Finish("stop")


@pytest.mark.parametrize("api", dialects.names())
def test_configured_web_search_with_upstream(api: str, tmp_path: Path) -> None:
    """The vendors' SDKs read its results, whatever API the upstream server has."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "a.md").write_text("# Animals\n\nZebras have stripes.\n")
    search = {"use": "local", "path": str(tmp_path / "pages"), "base_url": "https://docs.example.com"}
    own = {**apart(tmp_path), **{f"tools.web_search.{name}": value for name, value in search.items()}}
    with (
        in_thread(searches) as url,
        running(tmp_path, "--upstream", f"{url}/v1", "--upstream-api", api, settings=own) as gateway,
    ):
        client = anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0, timeout=DEADLINE_S)
        tools: Any = [{"type": "web_search_20250305", "name": "web_search"}]
        with client.messages.stream(
            model="m", max_tokens=99, tools=tools, messages=[{"role": "user", "content": "Zebras?"}]
        ) as stream:
            use, result, text = stream.get_final_message().content
        assert (use.type, result.type, text.type) == ("server_tool_use", "web_search_tool_result", "text")
        assert isinstance(result.content, list)
        assert [(hit.title, hit.url) for hit in result.content] == [("Animals", "https://docs.example.com/a.md")]
        assert "Zebras have stripes." in text.text
        sdk = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)
        response = sdk.responses.create(model="m", input="Zebras?", tools=[{"type": "web_search"}])
        assert [item.type for item in response.output] == ["web_search_call", "reasoning", "message"]
        assert "Zebras have stripes." in response.output_text
        completion = sdk.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Zebras?"}], web_search_options={}
        )
        message = completion.choices[0].message
        assert "Zebras have stripes." in (message.content or "")
        assert message.annotations
        assert message.annotations[0].url_citation.url == "https://docs.example.com/a.md"


@pytest.mark.parametrize("args", [["--print-config"], ["--port", "0"]])
def test_wrong_setting_of_web_search_prevents_start(args: list[str], tmp_path: Path) -> None:
    ended = command(tmp_path, "serve", *args, DRAGOMAN_TOOLS_WEB_SEARCH_USE="local", **apart_upstream(tmp_path))
    assert ended.returncode == 2
    assert "expected the path of a folder with documents, got none - at tools.web_search.path" in ended.stderr


def apart_upstream(home: Path) -> dict[str, str]:
    """Settings with an upstream server, so that no weights are needed."""
    file = home / "config.toml"
    file.write_text('[upstreams.far]\nurl = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n')
    return {"DRAGOMAN_CONFIG": str(file)}


@pytest.mark.parametrize("api", dialects.names())
def test_tool_round_trip_through_upstream(api: str, tmp_path: Path) -> None:
    own = apart(tmp_path)
    with (
        in_thread(weather) as url,
        running(tmp_path, "--upstream", f"{url}/v1", "--upstream-api", api, settings=own) as gateway,
    ):
        client = anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0, timeout=DEADLINE_S)
        asked = {"model": "m", "max_tokens": 99, "tools": [{"name": "weather", "input_schema": SCHEMA}]}
        messages = [{"role": "user", "content": "Weather in Bern?"}]
        with client.messages.stream(messages=messages, **asked) as stream:  # type: ignore[arg-type]
            reply = stream.get_final_message()
        (call,) = reply.content
        assert call.type == "tool_use"
        assert (call.name, call.input, reply.stop_reason) == ("weather", {"city": "Bern"}, "tool_use")
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]  # type: ignore[dict-item]
        told = client.messages.create(messages=messages, **asked)  # type: ignore[call-overload]
        assert told.content[0].text == "It is 18 degrees."
        assert (told.usage.input_tokens, told.usage.output_tokens) == (20, 5)


def test_upstream_from_config_file_is_served(tmp_path: Path) -> None:
    with in_thread(weather) as url:
        config = tmp_path / "config.toml"
        config.write_text(f'[upstreams.far]\nurl = "{url}/v1"\n[model_aliases]\n"gpt-4o" = "far/m"\n')
        with running(tmp_path, "--config", str(config)) as gateway:
            client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)
            assert {"m", "far/m", "gpt-4o"} <= {model.id for model in client.models.list()}
            tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
            messages = [{"role": "user", "content": "Weather in Bern?"}]
            raw = client.chat.completions.with_raw_response.create(
                model="gpt-4o",
                messages=messages,  # type: ignore[arg-type]
                tools=tools,  # type: ignore[arg-type]
                logit_bias={"1": 1},
            )
            (call,) = raw.parse().choices[0].message.tool_calls or ()
            assert json.loads(call.function.arguments) == {"city": "Bern"}  # type: ignore[union-attr]
            assert raw.parse().model == "gpt-4o"


def test_upstream_started_later_is_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with running(tmp_path, "--upstream", url, "--log-format", "text", settings=apart(tmp_path)) as gateway:
        assert "cannot list models" in gateway.line("cannot list models")
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        tools: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
        with pytest.raises(openai.InternalServerError, match="unknown model 'm', but upstream may have it") as refused:
            client.chat.completions.create(model="m", messages=messages)
        assert refused.value.status_code == 503
        assert refused.value.response.headers["retry-after"] == "3"
        with in_thread(weather, port):
            until(lambda: sum("upstream is up" in line for line in gateway.lines) == Defaults.workers)
            told = client.chat.completions.create(model="m", messages=messages, tools=tools)
            assert told.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--upstream-api", "openai_chat"], "name that with --upstream URL"),
        (["--api-key-env", "THE_KEY"], "name that with --upstream URL"),
        (["--upstream", "http://x", "--api-key-env", "THE_KEY"], "THE_KEY"),
        (["--upstream", "http://x", "--upstream", "http://y"], "in the settings file: [upstreams.NAME]"),
        (["--upstream", "localhost:1234"], "expected a URL like http://127.0.0.1:1234/v1, got 'localhost:1234'"),
        (
            ["--upstream", "http://x", "--upstream-api", "openai_chats"],
            "; did you mean 'openai_chat'?",
        ),
    ],
    ids=["API of no server", "key of no server", "variable not set", "two servers", "no URL", "no such API"],
)
def test_invalid_upstream_options_are_rejected(options: list[str], told: str, tmp_path: Path) -> None:
    ended = command(tmp_path, "serve", "--print-config", *options)
    assert ended.returncode == 2
    assert told in ended.stderr


@pytest.mark.parametrize("line", ["serve", "run claude", "ask", "doctor", "replay captures"])
def test_every_command_with_upstream_has_options_for_its_api_and_key(line: str) -> None:
    options = "--upstream http://h/v1 --upstream-api anthropic_messages --api-key-env THE_KEY"
    flags = upstream_flags(cli.parser().parse_args([*line.split(), *options.split()]))
    assert {key: value for key, value in flags.items() if value} == {
        "upstreams.upstream.url": "http://h/v1",
        "upstreams.upstream.api": "anthropic_messages",
        "upstreams.upstream.api_key_env": "THE_KEY",
    }


@pytest.mark.parametrize("name", ["serve", "run any", "ask", "doctor"])
def test_key_without_upstream_is_rejected(name: str, tmp_path: Path) -> None:
    more = ["--", "true"] if name == "run any" else []
    ended = command(tmp_path, *name.split(), "--api-key-env", "THE_KEY", *more)
    assert ended.returncode == 2
    assert "name that with --upstream URL" in ended.stderr


def test_print_config_hides_upstream_api_key(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[upstreams.far]\nurl = "http://127.0.0.1:9"\napi_key = "sk-secret"\n')
    ended = command(tmp_path, "serve", "--print-config", "--config", str(config))
    assert ended.returncode == 0
    assert "# upstreams.far.api_key: not shown" in ended.stdout
    assert "sk-secret" not in ended.stdout + ended.stderr
