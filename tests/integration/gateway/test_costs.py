"""The cost of a response in headers and log, by the price of the model that answered.

client ─HTTP→ gateway ─HTTP→ scripted upstream
"""

import json
import logging
from typing import Any

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook
from support.fake_upstream import END, FRONTS, HEAD, Play, Server, ask, piece, server, whole
from support.gateway import CHAT
from support.scripted_backend import serving

pytestmark = pytest.mark.asyncio

FAILS = whole(503, '{"error": {"message": "loading"}}')
USAGE = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 400}}
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "own",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": USAGE,
}
PRICES = {
    "b/own": PriceConfig(input_usd_per_million=1.0, cached_input_usd_per_million=0.1, output_usd_per_million=10.0),
    "a/*": PriceConfig(input_usd_per_million=1_000_000.0),
}
COST_USD = (600 * 1.0 + 400 * 0.1 + 50 * 10.0) / 1e6


def streamed() -> Play:
    async def play(far: Server, writer: Any) -> None:
        usage = b"data: %b\n\n" % json.dumps({"id": "x", "choices": [], "usage": USAGE}).encode()
        writer.write(HEAD + piece({"content": "Hello"}, "stop") + b"%x\r\n%b\r\n" % (len(usage), usage) + END)

    return play


def upstream(name: str, far: Server, **settings: Any) -> HttpBackend:
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", models=("own",), max_retries=0, **settings), {})


def logged(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The only line of the access log."""
    (line,) = (record.getMessage() for record in caplog.records if record.name == "dragoman.access")
    facts: dict[str, Any] = json.loads(line)
    return facts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FRONTS)
async def test_cost_is_that_of_the_upstream_that_answered(
    path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with server(FAILS) as one, server(streamed() if stream else whole(200, json.dumps(COMPLETION))) as two:
        backends = [upstream("a", one), upstream("b", two)]
        gateway = Gateway(backends, {"m": ["a/own", "b/own"]}, prices=PriceBook(PRICES, {}))
        async with serving(gateway) as (_, url):
            answer = await ask(url, path, stream)
    assert answer.status_code == 200, answer.text
    assert logged(caplog)["cost_usd"] == pytest.approx(COST_USD)
    if not stream:
        assert answer.headers["x-dragoman-cost-usd"] == f"{COST_USD:.6f}"


@pytest.mark.parametrize("stream", [False, True])
async def test_cost_of_a_response_that_is_passed_through(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with server(streamed() if stream else whole(200, json.dumps(COMPLETION))) as one:
        backend = upstream("b", one, tool_mode="native", passthrough=True)
        async with serving(Gateway([backend], {"m": "own"}, prices=PriceBook(PRICES, {}))) as (_, url):
            answer = await ask(url, CHAT, stream)
    facts = logged(caplog)
    assert answer.status_code == 200
    assert facts["cost_usd"] == pytest.approx(COST_USD)


async def test_model_without_price_has_no_cost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with server(whole(200, json.dumps(COMPLETION))) as one:
        gateway = Gateway([upstream("c", one)], {"m": "own"}, prices=PriceBook(PRICES, {}))
        async with serving(gateway) as (_, url):
            answer = await ask(url, CHAT, False)
    assert "x-dragoman-cost-usd" not in answer.headers
    assert "cost_usd" not in logged(caplog)
