"""`dragoman replay` of exchanges that another model was re-asked in, or that samples were compared in."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import cli
from dragoman.config.routes import take_routes
from dragoman.config.server import CaptureConfig
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.route import Routes
from dragoman.guard.policy import GuardPolicy
from support.capturing import TOOLS, kept, says
from support.fake_upstream import Play, Server, ask, server, whole
from support.gateway import CHAT
from support.scripted_backend import serving
from support.upstreams import upstream

pytestmark = pytest.mark.asyncio


def call(city: Any) -> str:
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {json.dumps({"city": city})}}}\n</tool_call>'


INVALID, PARIS = call({"name": "?"}), call("Paris")
FAILS = whole(503, '{"error": {"message": "loading"}}')


def in_turn(*texts: str) -> Play:
    async def play(far: Server, writer: Any) -> None:
        await says(texts[len(far.asked) - 1])(far, writer)

    return play


@pytest.mark.parametrize(
    ("first", "second", "settings", "code"),
    [
        ((INVALID,), in_turn(PARIS), {"second_opinion": "big"}, "second_opinion"),
        ((INVALID,), in_turn(PARIS), {"route": True}, "second_opinion"),
        ((INVALID, PARIS), FAILS, {"route": True}, "second_opinion_failed"),
        ((INVALID, PARIS, PARIS), FAILS, {"samples": 3}, "samples_compared"),
    ],
)
async def test_second_opinion_is_replayed(
    first: tuple[str, ...],
    second: Play,
    settings: dict[str, Any],
    code: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    routes = [{"second_opinion": "b/big"}] if settings.pop("route", False) else []
    rules = Routes(take_routes({"routes": routes}, "file")) if routes else None
    text_mode = {"tool_mode": "prompt", "call_format": "hermes", "auto_probe": False}
    async with server(in_turn(*first)) as one, server(second) as two:
        backends = [upstream("a", one, "m", **text_mode), upstream("b", two, "big", **text_mode)]
        gateway = Gateway(backends, policy=GuardPolicy(**settings), rules=rules)
        async with serving(gateway, capture=CaptureConfig(dir=str(tmp_path))) as (_, url):
            answer = await ask(url, CHAT, False, tools=TOOLS)
            await kept(tmp_path)
    assert code in answer.headers["x-dragoman-warnings"]
    capsys.readouterr()
    status = await asyncio.to_thread(cli.main, ["replay", str(tmp_path)])
    assert status == 0, capsys.readouterr().out
