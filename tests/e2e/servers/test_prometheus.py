"""A real Prometheus scrapes a gateway, and every query of the Grafana dashboard returns data.

client ─→ gateway (a: fails; b: calls a tool, first without its argument) ←─ prometheus ←─ queries
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.keys import KeyConfig
from dragoman.gateway.gateway import Gateway
from dragoman.prices.config import PriceConfig
from dragoman.prices.price_book import PriceBook
from dragoman.server.keys.ring import KeyRing
from support.fake_upstream import HEAD, Server, server, whole
from support.gateway import CHAT
from support.http_client import http_client
from support.paths import ROOT
from support.ports import free_port
from support.scripted_backend import serving

DASHBOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
QUERIES = [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
SECRET = "secret-of-the-team"
HEADERS = {"authorization": f"Bearer {SECRET}"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED = {
    "model": "m",
    "stream": True,
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}],
}
PRICES = PriceBook({"m": PriceConfig(input_usd_per_million=1, output_usd_per_million=2)}, {})
MAX_REQUESTS = 1000
USAGE = {"prompt_tokens": 90, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 60}}

needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="prometheus is not installed"
)


async def calls(far: Server, writer: asyncio.StreamWriter) -> None:
    """A call of the tool, of every other request without its argument."""
    arguments = "{}" if len(far.asked) % 2 else '{"city": "Paris"}'
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    events = [{"id": "x", "choices": [choice]}, {"id": "x", "choices": [], "usage": USAGE}]
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    writer.write(HEAD + f"{len(data):x}\r\n{data}\r\n0\r\n\r\n".encode())


@pytest.fixture
async def gateway_url() -> AsyncIterator[str]:
    async with server(whole(503, "{}")) as failing, server(calls) as calling:
        one = HttpConfig(url=f"{failing.url}/v1", models=("m", "broken"), max_retries=1)
        two = HttpConfig(url=f"{calling.url}/v1", models=("m",), tool_mode="native")
        gateway = Gateway([HttpBackend("a", one, {}), HttpBackend("b", two, {})], prices=PRICES)
        keys = KeyRing({"team": KeyConfig(secret=SECRET, admin=True)})
        async with serving(gateway, keys=keys) as (_, url):
            yield url


async def answered(client: httpx2.AsyncClient, query: str) -> list[Any]:
    answer = await client.get("/api/v1/query", params={"query": query})
    assert answer.status_code == 200, f"{query}: {answer.text}"
    found: list[Any] = answer.json()["data"]["result"]
    return found


@needs_prometheus
async def test_every_query_of_dashboard_returns_data(gateway_url: str, tmp_path: Path) -> None:
    target, own = gateway_url.removeprefix("http://"), f"127.0.0.1:{free_port()}"
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"scrape_configs: [{{job_name: dragoman, scrape_interval: 200ms, static_configs: [{{targets: ['{target}']}}], "
        f"authorization: {{credentials: {SECRET}}}}}]"
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path}",
        f"--web.listen-address={own}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with http_client(gateway_url) as asking, http_client(f"http://{own}") as client:
            missing = QUERIES
            for _ in range(MAX_REQUESTS):
                answer = await asking.post(CHAT, json=ASKED, headers=HEADERS)
                assert answer.status_code == 200, answer.text
                assert (await asking.post(CHAT, json=ASKED | {"model": "broken"}, headers=HEADERS)).status_code >= 500
                missing = [each for each in missing if not await has_data(client, each[1])]
                if not missing:
                    break
        assert missing == []
    finally:
        process.terminate()
        process.wait()


async def has_data(client: httpx2.AsyncClient, query: str) -> bool:
    """Returns whether Prometheus has samples for the query, with the variables of the dashboard replaced."""
    filled = query.replace("$__rate_interval", "1m").replace("$model", ".*")
    try:
        return any(value["value"][1] != "NaN" for value in await answered(client, filled))
    except httpx2.ConnectError:  # it is starting
        return False


@needs_prometheus
async def test_promtool_finds_no_problem(gateway_url: str) -> None:
    async with http_client(gateway_url) as client:
        await client.post(CHAT, json=ASKED, headers=HEADERS)
        text = (await client.get("/metrics", headers=HEADERS)).content
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
