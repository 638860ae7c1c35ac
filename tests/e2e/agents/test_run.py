"""`dragoman run` with the real agents: each makes one tool round trip, and the user's home is unchanged."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bench import offline

from support import agent_homes, agents
from support.agents import PROMPT, Calling
from support.gateway import CHAT
from support.scripted_backend import IMPATIENT, Served, served
from support.source_path import SOURCES


def command(agent: str, url: str, *args: str, options: tuple[str, ...] = ()) -> list[str]:
    behind = ["--upstream", f"{url}/v1", "--model", "m", "--context-window", "131072"]
    return [sys.executable, "-m", "dragoman", "run", agent, *behind, *options, "--", *args]


def environment(*programs: Path) -> dict[str, str]:
    return {"PATH": ":".join([*(str(each.parent) for each in programs), os.defpath]), "PYTHONPATH": SOURCES}


@asynccontextmanager
async def untouched(home: Path, script: Calling) -> AsyncIterator[Served]:
    """A scripted upstream, and a home that must not change."""
    before = agent_homes.furnish(home)
    async with served(script, **IMPATIENT) as far:
        yield far
    assert agent_homes.digests(home) == before
    assert {request.model for request in script.asked} == {"m"}
    assert {path for path, _ in far.sent} == {CHAT}
    assert (script.called().name, json.loads(script.called().arguments)) == (script.tool, script.arguments)
    assert "pomegranate" in script.result()


@pytest.mark.ran("Claude Code", "Chat Completions")
async def test_run_claude_code_tool_round_trip_keeps_home_unchanged(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("Read", {"file_path": str(folder / "notes.txt")})
    async with untouched(tmp_path, script) as far:
        run = command("claude", far.url, "-p", PROMPT)
        said = await agents.run(far.url, tmp_path, folder, run, **environment(offline.claude_code()))
    assert said.strip() == script.result().strip()


@pytest.mark.ran("Codex", "Chat Completions")
async def test_run_codex_tool_round_trip_keeps_home_unchanged(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("exec_command", {"cmd": "cat notes.txt"})
    async with untouched(tmp_path, script) as far:
        plain = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
        run = command("codex", far.url, "exec", *plain, PROMPT)
        told = agents.lines(await agents.run(far.url, tmp_path, folder, run, **environment(offline.codex())))
    (said,) = (line["item"]["text"] for line in told if line.get("item", {}).get("type") == "agent_message")
    assert said == script.result()


@pytest.mark.ran("OpenCode", "Chat Completions")
async def test_run_opencode_tool_round_trip_keeps_home_unchanged(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("read", {"filePath": str(folder / "notes.txt")})
    async with untouched(tmp_path, script) as far:
        run = command("opencode", far.url, "run", "--format", "json", "--title", "t", PROMPT)
        told = agents.lines(await agents.run(far.url, tmp_path, folder, run, **environment(offline.opencode())))
    assert [line["part"]["text"] for line in told if line["type"] == "text"][-1] == script.result()


@pytest.mark.ran("Hermes Agent", "Chat Completions")
async def test_run_hermes_tool_round_trip_keeps_home_unchanged(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("read_file", {"path": str(folder / "notes.txt")})
    async with untouched(tmp_path, script) as far:
        run = command("hermes", far.url, "-z", PROMPT, "--yolo", "--ignore-rules", "-t", "file")
        said = await agents.run(far.url, tmp_path, folder, run, **environment(offline.agent("hermes")))
    assert said.strip() == script.result().strip()


@pytest.mark.ran("OpenClaw", "Chat Completions")
async def test_run_openclaw_tool_round_trip_keeps_home_unchanged(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("read", {"path": str(folder / "notes.txt")})
    async with untouched(tmp_path, script) as far:
        run = command("openclaw", far.url, "agent", "exec", "--json", "--cwd", str(folder), PROMPT)
        said = await agents.run(far.url, tmp_path, folder, run, **environment(offline.openclaw(), offline.node()))
    assert json.loads(said)["ok"]
