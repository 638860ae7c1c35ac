"""The traces of the Claude CLI: the real CLI and the fake one still write the recorded lines."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from bench import offline

from support.claude_cli import fake
from support.claude_cli.cases import CASES
from support.claude_cli.record import TRACES
from support.claude_cli.session import environment, run
from support.gateway import DEADLINE_S

LIVE: Final = ["plain", "calls", "cut", "cut_in_text", "no_login", "limit_five_hours"]
"""The most important traces: a response, calls, a broken stream, and errors."""
MOVES: Final = {"notifications/initialized", "thinking_tokens", "status", "ui_invalidate"}
"""Lines whose position and number vary."""


def recorded(name: str) -> list[Any]:
    return [json.loads(line) for line in (TRACES / f"{name}.jsonl").read_text().splitlines()]


def kinds(lines: list[Any]) -> tuple[set[str], list[set[str]]]:
    """The lines before the init message, without their order, and the lines from there on."""
    said = [words for line in lines if not MOVES & (words := fake.words(line))]
    begins = next(n for n, words in enumerate(said) if "init" in words)
    return set().union(*said[:begins]), said[begins:]


def test_every_case_is_recorded_with_installed_version() -> None:
    assert {path.stem for path in TRACES.iterdir()} == CASES.keys()
    for name in CASES:
        head, *lines, end = recorded(name)
        assert (head["case"], head["claude"]) == (name, offline.version("@anthropic-ai/claude-code")), head["how"]
        assert set().union(*lines) <= {"us", "cli", "stderr", "wire"}
        assert set(end) == {"exit"}


def test_traces_contain_no_machine_data() -> None:
    for path in TRACES.iterdir():
        text = path.read_text()
        for word in ("sk-ant", str(Path.home()) + "/", os.uname().nodename, "tmp/tmp"):
            assert word not in text, path


@pytest.mark.parametrize("name", LIVE)
async def test_real_cli_matches_trace(name: str) -> None:
    made, _ = await run(CASES[name])
    said = [line for who, line in made.heard if who == "cli"]
    assert kinds(said) == kinds(fake.said(TRACES / f"{name}.jsonl"))
    assert recorded(name)[-1] == {"exit": made.exit}


@pytest.mark.parametrize("name", ["plain", "calls", "history", "no_login"])
async def test_fake_cli_matches_trace(tmp_path: Path, name: str) -> None:
    """It gets the same input with other ids."""
    command = fake.installed(tmp_path)
    fake.plan(command, TRACES / f"{name}.jsonl")
    _, *steps, end = recorded(name)
    told = [step["us"] for step in steps if "us" in step]
    assert told[0].pop("request_id") == "begin"
    child = await asyncio.create_subprocess_exec(
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(CASES[name], tmp_path, "http://127.0.0.1:9"),
    )
    lines = "".join(json.dumps(line) + "\n" for line in [{**told[0], "request_id": "other"}, *told[1:]])
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await child.communicate(lines.encode())
    expected = json.dumps(fake.said(TRACES / f"{name}.jsonl")).replace('"begin"', '"other"')
    assert [json.loads(line) for line in said.splitlines()] == json.loads(expected)
    assert child.returncode == end["exit"]
    assert [entry["told"]["type"] for entry in fake.log(command) if "told" in entry] == [line["type"] for line in told]
