"""The records of real exchanges: each field, through the three APIs.

client ─HTTP→ gateway ─HTTP→ scripted servers
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dragoman import __version__
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import CaptureConfig
from dragoman.core.backend import Backend
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.records import schema
from dragoman.records.config import RecordsConfig
from dragoman.records.database import locate, open_for_reading
from dragoman.records.writer import RecordWriter
from support.fake_upstream import CHAT, END, FRONTS, HEAD, MESSAGES, Play, Server, ask, piece, server, whole
from support.guarded import Asked
from support.guarded import told as scripted
from support.http_client import http_client
from support.scripted_backend import serving

pytestmark = pytest.mark.asyncio

USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SERIES = ("version", "dialect", "key", "agent", "role", "model", "alias", "upstream", "upstream_model", "tool_mode",
          "format", "stream", "passthrough", "finish", "status", "error")  # fmt: skip
FAILS = whole(503, '{"error": {"message": "secret prompt text"}}')


def tools(path: str) -> list[dict[str, Any]]:
    function = {"name": "get_weather", "description": "d"}
    if path == MESSAGES:
        return [{**function, "input_schema": WEATHER}]
    function["parameters"] = WEATHER  # type: ignore[assignment]
    return [{"type": "function", "function": function} if path == CHAT else {"type": "function", **function}]


def calls_weather(arguments: str, stream: bool) -> Play:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    if not stream:
        choice = {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
        return whole(200, json.dumps({"choices": [choice], "usage": USAGE}))

    async def play(far: Server, writer: Any) -> None:
        usage = json.dumps({"id": "x", "choices": [], "usage": USAGE})
        data = f"data: {usage}\n\n".encode()
        last = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        writer.write(HEAD + piece({"tool_calls": [{"index": 0, **call}]}, "tool_calls") + last + END)

    return play


def upstream(name: str, far: Server, model: str = "own", **settings: Any) -> HttpBackend:
    own = {"models": (model,), "max_retries": 0, "auto_probe": False, **settings}
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", **own), {})


class Recorded:
    """A database of records in a folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/records.sqlite"
        self.writer = RecordWriter(RecordsConfig(url=self.url), batch_delay_s=0)

    def read(self) -> tuple[list[Mapping[str, Any]], list[tuple[Any, ...]]]:
        """Returns the exchanges, and tool, outcome, repairs and number of the calls."""
        self.writer.close(60)
        with open_for_reading(locate(self.url)).begin() as connection:
            exchanges = connection.execute(select(schema.exchange_view).order_by(schema.exchange_view.c.number))
            calls = connection.execute(select(schema.call_view.c["tool", "outcome", "repairs", "count"]))
            return [dict(row) for row in exchanges.mappings()], [tuple(row) for row in calls]

    def only(self) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
        (exchange,), calls = self.read()
        return dict(exchange), calls


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


def labels(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The labels that are not empty."""
    return {name: exchange[name] for name in SERIES if exchange[name]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FRONTS)
async def test_failover_and_repaired_call(path: str, stream: bool, recorded: Recorded) -> None:
    async with server(FAILS) as one, server(calls_weather('{"city": "Bonn", "x": 1}', stream)) as two:
        gateway = Gateway([upstream("a", one), upstream("b", two)], {"m": ["a/own", "b/own"]})
        async with serving(gateway, records=recorded.writer) as (_, url):
            answer = await ask(url, path, stream, {"user-agent": "codex_cli_rs/0.5"}, tools=tools(path))
    assert answer.status_code == 200
    exchange, calls = recorded.only()
    agent = exchange["agent"]
    assert labels(exchange) == {
        "version": __version__,
        "dialect": {CHAT: "openai_chat", MESSAGES: "anthropic_messages"}.get(path, "openai_responses"),
        **({"agent": agent, "role": exchange["role"]} if exchange["role"] else {"agent": agent} if agent else {}),
        "model": "m",
        "alias": "m",
        "upstream": "b",
        "upstream_model": "own",
        "tool_mode": "native",
        **({"stream": True} if stream else {}),
        "finish": "tool_calls",
        "status": 200,
    }
    assert answer.headers["x-request-id"] == f"req_{exchange['id']}"
    assert exchange["attempts"] == 2
    assert json.loads(exchange["failed_attempts"]) == [["a", "UpstreamError: status 503"]]
    tokens = [exchange[f"{kind}_tokens"] for kind in ("input", "cached", "output", "reasoning")]
    assert tokens == [50, 40, 7, 3]
    assert exchange["tools_offered"] == 1
    assert 0 <= exchange["queue_ms"] <= exchange["first_ms"] <= exchange["total_ms"]
    assert calls == [("get_weather", "valid", "", 1)]
    assert [exchange[name] for name in ("error_message", "captured", "prompt_ms", "cost_usd")] == [None] * 4


@pytest.mark.parametrize("path", FRONTS)
async def test_repairs_of_a_call(path: str, recorded: Recorded) -> None:
    answer = calls_weather('{"city": "Bonn",}', False)
    async with server(answer) as one, serving(Gateway([upstream("a", one, "m")]), records=recorded.writer) as (_, url):
        await ask(url, path, False, tools=tools(path))
    exchange, [(tool, outcome, repairs, count)] = recorded.only()
    assert (tool, outcome, count) == ("get_weather", "repaired", 1)
    assert repairs == "commas"
    assert exchange["attempts"] == 1


async def test_passed_through_response(recorded: Recorded) -> None:
    async with server(calls_weather('{"city": "Bonn"}', False)) as one:
        backend = upstream("a", one, "m", tool_mode="native", passthrough=True)
        async with serving(Gateway([backend]), records=recorded.writer) as (_, url):
            await ask(url, CHAT, False, tools=tools(CHAT))
    exchange, _ = recorded.only()
    assert (exchange["passthrough"], exchange["upstream"], exchange["tool_mode"]) == (True, "a", "native")
    assert (exchange["input_tokens"], exchange["cached_tokens"], exchange["finish"]) == (50, 40, "tool_calls")


async def test_format_of_parsed_text(recorded: Recorded) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
    answer = whole(200, json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}))
    async with server(answer) as one:
        backend = upstream("a", one, "m", tool_mode="prompt", call_format="hermes")
        async with serving(Gateway([backend]), records=recorded.writer) as (_, url):
            await ask(url, MESSAGES, True, tools=tools(MESSAGES))
    exchange, calls = recorded.only()
    assert (exchange["tool_mode"], exchange["format"]) == ("prompt", "hermes")
    assert calls == [("get_weather", "valid", "", 1)]


async def test_recovered_call(recorded: Recorded) -> None:
    text = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bonn"}}\n</tool_call>'
    answer = whole(200, json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}))
    async with server(answer) as one:
        backend = upstream("a", one, "m", tool_mode="native")
        async with serving(Gateway([backend]), records=recorded.writer) as (_, url):
            await ask(url, CHAT, False, tools=tools(CHAT))
    assert recorded.only()[1] == [("get_weather", "recovered", "", 1)]


async def test_reasked_call(recorded: Recorded) -> None:
    backend = Asked(scripted(("get_weather", '{"days": 2}')), scripted(("get_weather", '{"city": "Bonn"}')))
    gateway = Gateway([backend], policy=GuardPolicy())
    async with serving(gateway, records=recorded.writer) as (_, url):
        await ask(url, MESSAGES, False, tools=tools(MESSAGES))
    exchange, calls = recorded.only()
    assert calls == [("get_weather", "reasked", "", 1)]
    assert exchange["attempts"] == 2
    assert [reason for _, reason in json.loads(exchange["failed_attempts"])] == ["reasked"]


async def test_names_and_content_of_a_request_are_bounded_or_absent(recorded: Recorded, tmp_path: Path) -> None:
    long = "n" * 1000
    backend = Asked(*[scripted(("secret_tool", '{"secret": 1}'))] * 4)
    async with serving(Gateway([backend], policy=GuardPolicy()), records=recorded.writer) as (_, url):
        await ask(url, CHAT, False, tools=tools(CHAT), model="m")
        await ask(url, CHAT, False, tools=tools(CHAT), model=long)
    (_, second), calls = recorded.read()
    assert len(second["model"]) == 100
    assert set(calls) == {("", "unknown", "", 1)}
    assert b"secret" not in (tmp_path / "records.sqlite").read_bytes()


async def test_errors(recorded: Recorded) -> None:
    async with server(FAILS) as one, serving(Gateway([upstream("a", one, "m")]), records=recorded.writer) as (_, url):
        await ask(url, CHAT, False)
        await ask(url, CHAT, False, model="absent")
        async with http_client(url) as client:
            await client.post(CHAT, content=b"{")
            await client.post("/v1/messages/count_tokens", json={"model": "m", "messages": []})
            await client.get("/v1/models")
    exchanges, _ = recorded.read()
    assert [(row["error"], row["status"]) for row in exchanges] == [
        ("UpstreamError", 503), ("UnknownModelError", 404), ("RequestError", 400),
    ]  # fmt: skip
    assert exchanges[0]["error_message"] == "status 503"
    assert [row["input_tokens"] for row in exchanges] == [None, None, None]


async def test_untranslated_request(recorded: Recorded) -> None:
    async with server(whole(200, "{}")) as one:
        gateway = Gateway([upstream("a", one, "m")])
        async with serving(gateway, records=recorded.writer) as (_, url), http_client(url) as client:
            await client.post("/v1/embeddings", json={"model": "m", "input": "hi"})
    exchange, _ = recorded.only()
    assert (exchange["dialect"], exchange["upstream"], exchange["status"]) == ("passthrough", "a", 200)


async def test_key_and_refused_requests(recorded: Recorded) -> None:
    backends: list[Backend] = [Asked(scripted(text="Hello"))]
    async with serving(Gateway(backends), records=recorded.writer, api_keys=("abcdef",)) as (_, url):
        await ask(url, CHAT, False, {"authorization": "Bearer abcdef"})
        await ask(url, CHAT, False, {"authorization": "Bearer wrong-key"})
    (exchange,), _ = recorded.read()
    assert exchange["status"] == 200


async def test_capture_is_named(recorded: Recorded, tmp_path: Path) -> None:
    backend = Asked(scripted(text="Hello"))
    capture = CaptureConfig(dir=str(tmp_path / "captures"))
    async with serving(Gateway([backend]), capture=capture, records=recorded.writer) as (_, url):
        await ask(url, CHAT, False)
    exchange, _ = recorded.only()
    assert (tmp_path / "captures" / exchange["captured"]).is_dir()
