"""Fetched pages and refused URLs in captures, replays and bundles."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from dragoman import cli
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.config.server import CaptureConfig
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from support.capturing import kept, lines, says
from support.fake_upstream import Server, server
from support.gateway import MESSAGES
from support.http_client import http_client
from support.pages import fetcher, page, site
from support.scripted_backend import serving

PAGE: Final = "Zebras of Mallorca"


@pytest.mark.parametrize(("query", "error"), [("", None), ("?key=secret", "url_not_in_prior_context")])
async def test_fetch_is_replayed_without_network(
    query: str, error: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site({"/zebras": page(PAGE, "text/plain")}) as pages:
        url = pages.url("/zebras")
        call = json.dumps({"name": "web_fetch", "arguments": {"url": url + query}})

        async def play(far: Server, writer: Any) -> None:
            await says("Done." if len(far.asked) > 1 else f"<tool_call>\n{call}\n</tool_call>")(far, writer)

        async with server(play) as far:
            config = HttpConfig(
                f"{far.url}/v1", models=("m",), tool_mode="prompt", call_format="hermes", auto_probe=False
            )
            runner = VendorToolRunner({"web_fetch": fetcher(pages.port, any_url=False)})
            gateway = Gateway([HttpBackend("far", config, {})], vendor_tools=runner)
            async with (
                serving(gateway, capture=CaptureConfig(dir=str(tmp_path / "kept"))) as (_, own),
                http_client(own) as client,
            ):
                tools = [{"type": "web_fetch_20250910", "name": "web_fetch"}]
                asking = [{"role": "user", "content": f"What is on {url}?"}]
                body = {"model": "m", "max_tokens": 99, "tools": tools, "messages": asking}
                reply = (await client.post(MESSAGES, json=body)).json()
    assert [block["type"] for block in reply["content"]] == ["server_tool_use", "web_fetch_tool_result", "text"]
    (folder,) = await kept(tmp_path / "kept")
    (run,) = lines(folder / "tool-runs.jsonl")
    assert run["result"].get("error") == error
    bundle = tmp_path / "bug.zip"
    assert await asyncio.to_thread(cli.main, ["bundle", str(folder), "-o", str(bundle)]) == 0
    for captured in (folder, bundle):
        capsys.readouterr()
        assert await asyncio.to_thread(cli.main, ["replay", str(captured)]) == 0, capsys.readouterr().out
