"""A gateway that captures exchanges, and helpers to read the captures."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import NO_CAPTURE, CaptureConfig
from dragoman.gateway.gateway import Gateway
from support.fake_upstream import END, HEAD, Play, Server, piece, server
from support.scripted_backend import eventually, serving

SECRET = "a-key-that-nobody-may-see"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def says(*pieces: str) -> Play:
    """Streams this text, each piece in a separate write."""

    async def play(server: Server, writer: Any) -> None:
        writer.write(HEAD + piece({"role": "assistant", "content": ""}))
        for text in pieces:
            await writer.drain()
            writer.write(piece({"content": text}))
        writer.write(piece({}, "stop") + END)

    return play


@contextlib.asynccontextmanager
async def keeping(
    place: Path, play: Play, config: dict[str, Any] | None = None, capture: CaptureConfig = NO_CAPTURE, **far: Any
) -> AsyncIterator[str]:
    """The URL of a gateway with a scripted upstream, which captures exchanges in this folder."""
    async with server(play) as behind:
        settings: dict[str, Any] = {"models": ("m",), "max_retries": 0, "api_key": SECRET, "auto_probe": False, **far}
        backend = HttpBackend("far", HttpConfig(url=f"{behind.url}/v1", **settings), {}, may_recall=True)
        async with serving(Gateway([backend]), capture=replace(capture, dir=str(place)), **(config or {})) as (_, url):
            yield url


async def kept(place: Path, count: int = 1) -> list[Path]:
    """Returns the captured exchanges, oldest first, once there are `count`."""
    await eventually(lambda: len(folders(place)) >= count)
    return folders(place)


def folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if not path.name.startswith("."))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
