"""A scripted text upstream, and a gateway with it that gets requests over each API."""

import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import Message, Reply, Request, Text, Tool, ToolCall
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import END, HEAD, Play, piece
from support.http_client import http_client
from support.scripted_backend import serving

SCHEMA = json.dumps(
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
)
WEATHER = Tool("get_weather", "The weather in a city.", SCHEMA)
PING = Tool("ping", "Whether anybody is there.", json.dumps({"type": "object", "properties": {}}))
ARGUMENTS = '{"city": "Paris", "days": 3}'
QUESTION = Message("user", (Text("Weather in Paris?"),))
ASKED = Request("m", (QUESTION,), (WEATHER, PING), max_tokens=200)
FRONTS = dialects.names()


def writes(*pieces: str, finish: str = "stop", stays: bool = False) -> Play:
    """A server that streams these pieces of text; with `stays` it then waits until the client disconnects."""

    async def play(server: Any, writer: Any) -> None:
        writer.write(HEAD + b"".join(piece({"content": text}) for text in pieces))
        if stays:
            await server.left.wait()
        else:
            writer.write(piece({}, finish) + END)

    return play


@contextlib.asynccontextmanager
async def gateway(url: str, **settings: Any) -> AsyncIterator[tuple[str, HttpBackend]]:
    """The URL of a gateway, and its backend for the server with a model `m`."""
    backend = HttpBackend("far", HttpConfig(url=f"{url}/v1", **{"models": ("m",), **settings}), {})
    async with serving(Gateway([backend])) as (_, own):
        yield own, backend


class Answer(NamedTuple):
    """The response that a client got."""

    reply: Reply
    warnings: list[str]
    """The codes in the warnings header."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.reply.parts if isinstance(part, Text))

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(p.name, json.loads(p.arguments)) for p in self.reply.parts if isinstance(p, ToolCall)]


async def ask(url: str, front: str, request: Request = ASKED, **more: Any) -> Answer:
    """Sends this request over this API; without streaming unless the request sets it."""
    dialect = dialects.get(front)
    body = json.loads(dialect.write_request(request, request.model).body) | more
    async with http_client(url) as client:
        answer = await client.post(dialect.path, content=json.dumps(body).encode())
    assert answer.status_code == 200, answer.text
    ids = itertools.count()
    reader = dialect.reader(request, ExchangeContext("1", 0, lambda: f"{next(ids):024}"))
    reply = collect([*reader.feed(answer.content), *reader.close()])
    # Warnings after the headers of a stream are sent as comments.
    told = [answer.headers.get("x-dragoman-warnings", ""), *re.findall(r"(?m)^: dragoman-warnings (.+)$", answer.text)]
    return Answer(reply, [label.partition(":")[0] for labels in told for label in labels.split(", ")])


def cut(text: str, size: int = 3) -> Sequence[str]:
    """Splits the text into small pieces."""
    return ["".join(some) for some in _batched(text, size)]


def _batched(text: str, size: int) -> Iterable[Sequence[str]]:
    return (text[i : i + size] for i in range(0, len(text), size))
