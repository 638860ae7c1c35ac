"""Agents with a gateway whose models are on upstream servers, for each upstream API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.gateway.gateway import Gateway
from support import agents, ran_pairs
from support.agents import NOTES, Calling
from support.scripted_backend import IMPATIENT, served, serving

BEHIND = pytest.mark.parametrize("behind", dialects.names())


@asynccontextmanager
async def chain(script: Calling, behind: str) -> AsyncIterator[str]:
    """A gateway whose upstream is another gateway, over this API, with a scripted model."""
    async with served(script, **IMPATIENT) as far:
        near = Gateway([HttpBackend("far", HttpConfig(url=f"{far.url}/v1", api=behind), {})])
        async with serving(near, **IMPATIENT) as (_, url):
            yield url
    assert {path for path, _ in far.sent} == {dialects.get(behind).path}


def assert_round_trip(script: Calling) -> None:
    """Asserts that the second request contains the unchanged call and its result."""
    assert (script.called().name, json.loads(script.called().arguments)) == (script.tool, script.arguments)
    assert NOTES.strip() in script.result()
    assert len(script.asked) == 2


@pytest.mark.ran("Claude Code", ran_pairs.APIS)
@BEHIND
async def test_claude_code_tool_round_trip_over_each_upstream_api(behind: str, tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("Read", {"file_path": str(folder / "notes.txt")}), behind) as url:
        told = await agents.claude_code(url, tmp_path, folder)
    assert (told[-1]["is_error"], told[-1]["result"]) == (False, script.result())
    assert_round_trip(script)


@pytest.mark.ran("Codex", ran_pairs.APIS)
@BEHIND
async def test_codex_tool_round_trip_over_each_upstream_api(behind: str, tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("exec_command", {"cmd": "cat notes.txt"}), behind) as url:
        told = await agents.codex(url, tmp_path, folder)
    (said,) = (line["item"]["text"] for line in told if line.get("item", {}).get("type") == "agent_message")
    assert said == script.result()
    assert_round_trip(script)


@pytest.mark.every
@pytest.mark.ran("OpenCode", "Chat Completions")
async def test_opencode_tool_round_trip_over_chat_completions(tmp_path: Path) -> None:
    """Six seconds of CPU time; test_run.py has the same pair with the settings of `dragoman run`."""
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("read", {"filePath": str(folder / "notes.txt")}), "openai_chat") as url:
        told = await agents.opencode(url, tmp_path, folder, "@ai-sdk/openai")
    assert [line["part"]["text"] for line in told if line["type"] == "text"][-1] == script.result()
    assert_round_trip(script)
