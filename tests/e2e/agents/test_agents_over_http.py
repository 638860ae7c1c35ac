"""Agents in front of a gateway whose models are on other servers: each API that a server may speak."""

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
    """A gateway in front of a server of this API, which is a gateway too, in front of the script."""
    async with served(script, **IMPATIENT) as far:
        near = Gateway([HttpBackend("far", HttpConfig(url=f"{far.url}/v1", api=behind), {})])
        async with serving(near, **IMPATIENT) as (_, url):
            yield url
    assert {path for path, _ in far.sent} == {dialects.get(behind).path}


def held(script: Calling) -> None:
    """The call came back as it was made, and its result with it."""
    assert (script.called().name, json.loads(script.called().arguments)) == (script.tool, script.arguments)
    assert NOTES.strip() in script.result()
    assert len(script.asked) == 2


@pytest.mark.ran("Claude Code", ran_pairs.APIS)
@BEHIND
async def test_claude_code(behind: str, tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("Read", {"file_path": str(folder / "notes.txt")}), behind) as url:
        told = await agents.claude_code(url, tmp_path, folder)
    assert (told[-1]["is_error"], told[-1]["result"]) == (False, script.result())
    held(script)


@pytest.mark.ran("Codex", ran_pairs.APIS)
@BEHIND
async def test_codex(behind: str, tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("exec_command", {"cmd": "cat notes.txt"}), behind) as url:
        told = await agents.codex(url, tmp_path, folder)
    (said,) = (line["item"]["text"] for line in told if line.get("item", {}).get("type") == "agent_message")
    assert said == script.result()
    held(script)


@pytest.mark.ran("OpenCode", "Chat Completions")
async def test_opencode(tmp_path: Path) -> None:
    """By one API, on a server of another; it takes six seconds of a processor to do anything."""
    folder = agents.folder_of(tmp_path)
    async with chain(script := Calling("read", {"filePath": str(folder / "notes.txt")}), "openai_chat") as url:
        told = await agents.opencode(url, tmp_path, folder, "@ai-sdk/openai")
    assert [line["part"]["text"] for line in told if line["type"] == "text"][-1] == script.result()
    held(script)
