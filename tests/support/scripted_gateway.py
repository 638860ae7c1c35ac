"""A gateway process in front of an upstream server that plays one script for each model name."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import httpx2

from dragoman import dialects
from dragoman.core.messages import Message, Request, Text, Tool
from support.fake_upstream import END, HEAD, Server, piece, server, whole
from support.gateway import CHAT, Gateway
from support.http_client import http_client

Piece: TypeAlias = "str | dict[str, Any]"
"""Text of the model, or a delta of Chat Completions."""

DIALECTS: Final = dialects.names()
SCHEMA: Final = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
WEATHER: Final = Tool("get_weather", "The weather in a city.", SCHEMA)
LEAKED: Final = (
    "Let me look. ",
    '<tool_call>\n{"name": "get_weather", ',
    '"arguments": {"city": "Paris"}}\n</tool_call>',
)
BROKEN: Final = (
    "Let me look. ",
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris",\n',
    "</tool_call>",
)
REPAIRED: Final = ('<tool_call>\n{"name": "get_weather", ', '"arguments": {"city": "Paris",}}\n</tool_call>')
CALL: Final = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
NATIVE: Final = ({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": CALL}]},)
SCRIPTS: Final[Mapping[str, Sequence[Piece]]] = {
    "plain": ("It is ", "fine", " today."),
    "leaky": LEAKED,
    "leaking": LEAKED,
    "sloppy": LEAKED,
    "broken": BROKEN,
    "repaired": REPAIRED,
    "caller": NATIVE,
    "unfinished": BROKEN,
    "thinker": ({"reasoning_content": "The user greets me."}, "Hello."),
}
"""What a model of this name writes; after a tool result, all write the result."""
MODELS: Final = ("slow", *(name for name in SCRIPTS if name != "unfinished"))
"""The models whose calls the upstream server reads."""
USAGE: Final = {"prompt_tokens": 1200, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1000}}


@dataclass
class Script:
    """What the models of one upstream server write."""

    pieces: dict[str, Sequence[Piece]] = field(default_factory=lambda: dict(SCRIPTS))
    errors: dict[str, str] = field(default_factory=dict)
    """Message of the error response of a model, in place of its pieces."""
    slow: asyncio.Event = field(default_factory=asyncio.Event)
    """The model `slow` waits for this in the middle of its text."""

    async def play(self, upstream: Server, writer: asyncio.StreamWriter) -> None:
        """Writes the response of the model that was requested."""
        line, _, body = upstream.asked[-1]
        if not line.startswith("POST"):
            return await whole(404, "{}")(upstream, writer)
        request = json.loads(body)
        if error := self.errors.get(request["model"]):
            return await whole(400, json.dumps({"error": {"message": error, "type": error, "code": error}}))(
                upstream, writer
            )
        writer.write(HEAD)
        if request["model"] == "slow":
            writer.write(piece({"content": "It is "}))
            await writer.drain()
            await self.slow.wait()
        results = [each["content"] for each in request["messages"] if each["role"] == "tool"]
        for each in [f"It is {results[-1]}."] if results else self.pieces.get(request["model"], ("Done.",)):
            await writer.drain()
            writer.write(piece({"content": each} if isinstance(each, str) else each))
        has_calls = request["model"] == "caller" and not results
        writer.write(piece({}, "tool_calls" if has_calls else "stop") + _usage() + END)


def _usage() -> bytes:
    data = f"data: {json.dumps({'id': 'x', 'choices': [], 'usage': USAGE})}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Asked(NamedTuple):
    """A request to the gateway, and its response."""

    id: str
    response: httpx2.Response


class ScriptedGateway:
    """A gateway process, its upstream server, and requests to it."""

    def __init__(self, process: Gateway, script: Script, upstream: Server) -> None:
        self.process = process
        self.script = script
        self.upstream = upstream
        self.url = process.url

    async def ask(
        self,
        model: str,
        text: str = "Weather in Paris?",
        dialect: str = "openai_chat",
        tools: Sequence[Tool] = (WEATHER,),
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Asked:
        """Sends one streamed request.

        Args:
            model: The model.
            text: The user's message.
            dialect: The API.
            tools: The tools offered.
            headers: More headers.
            more: More members of the body.
        """
        body = request_body(model, text, dialect, tools) | more
        async with http_client(self.url) as client:
            response = await client.post(dialects.get(dialect).path, json=body, headers=dict(headers or {}))
        return Asked(response.headers["x-request-id"], response)

    @contextlib.asynccontextmanager
    async def begun(self, model: str) -> AsyncIterator[Asked]:
        """Sends a request, and yields its response once that has begun; reads it to its end."""
        body = request_body(model, "Weather in Paris?", "openai_chat", ())
        async with http_client(self.url) as client, client.stream("POST", CHAT, json=body) as response:
            yield Asked(response.headers["x-request-id"], response)
            await response.aread()

    async def api(self, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
        """Sends one request to the console's own API, as its page does."""
        own = {"x-dragoman-console": "1", **headers} if method != "GET" else headers
        async with http_client(self.url) as client:
            return await client.request(method, f"/console/api{path}", json=body, headers=own)

    async def capture(self, is_on: bool) -> None:
        """Switches captures in memory on or off."""
        response = await self.api("PUT", "/capture", {"on": is_on})
        assert response.status_code == 200, response.text


def request_body(model: str, text: str, dialect: str, tools: Sequence[Tool]) -> dict[str, Any]:
    """The body of a streamed request with one message."""
    request = Request(model=model, messages=(Message("user", (Text(text),)),), tools=tuple(tools), max_tokens=200)
    body: dict[str, Any] = json.loads(dialects.get(dialect).write_request(request, model).body)
    return body | {"stream": True}


def _table(name: str, values: Mapping[str, object]) -> str:
    return "\n".join([f"[upstreams.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())])


@contextlib.asynccontextmanager
async def scripted_gateway(settings: str = "", models: Sequence[str] = MODELS) -> AsyncIterator[ScriptedGateway]:
    """Starts a gateway with an upstream server, named `far`; as `parsed`, the gateway reads the calls of its models.

    Args:
        settings: More settings, in TOML.
        models: The models of `far`.
    """
    script = Script()
    async with server(script.play) as upstream:
        with tempfile.TemporaryDirectory(prefix="console-") as folder:
            home = Path(folder)
            far = {"url": f"{upstream.url}/v1", "models": list(models), "auto_probe": False, "max_retries": 0}
            parsed = {**far, "models": ["unfinished"], "tool_mode": "parse", "call_format": "hermes"}
            tables = [_table("far", far), _table("parsed", parsed), settings]
            (home / "config.toml").write_text("\n".join(tables))
            process = Gateway(home, "--config", str(home / "config.toml"), settings={"embedded.enabled": "false"})
            try:
                await asyncio.to_thread(process.ready)
                yield ScriptedGateway(process, script, upstream)
            finally:
                script.slow.set()
                if process.process.poll() is None:
                    await asyncio.to_thread(process.stop)
                else:
                    await asyncio.to_thread(process.ended)
