"""OpenCode, the real one, against a backend that plays a script: through each of its three providers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import offline

import agents
from agents import NOTES, PROMPT, Calling
from dragoman import dialects
from scripted import Sent, served

PROVIDERS = pytest.mark.parametrize(
    ("package", "dialect"),
    [
        ("@ai-sdk/openai-compatible", "openai_chat"),
        ("@ai-sdk/openai", "openai_responses"),
        ("@ai-sdk/anthropic", "anthropic_messages"),
    ],
)
QUIET = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def configured(url: str, package: str) -> str:
    """One provider with one model, and leave to do what it likes."""
    options = {"baseURL": f"{url}/v1", "apiKey": "k"}
    provider = {"npm": package, "options": options, "models": {"m": {"name": "m", "tool_call": True}}}
    return json.dumps({"provider": {"test": provider}, "permission": {"*": "allow"}})


async def run(home: Path, package: str) -> tuple[list[dict[str, Any]], Calling, list[Sent]]:
    folder = agents.folder_of(home)
    async with served(script := Calling("read", {"filePath": str(folder / "notes.txt")})) as s:
        env = {"OPENCODE_CONFIG_CONTENT": configured(s.url, package), **QUIET}
        options = ("--pure", "--format", "json", "--title", "t", "-m", "test/m")
        said = await agents.run(s.url, home, folder, [offline.opencode(), "run", *options, PROMPT], **env)
    return agents.lines(said), script, s.sent


@PROVIDERS
async def test_it_reads_a_file_and_says_what_it_holds(
    package: str, dialect: str, tmp_path: Path, keep: Callable[..., None]
) -> None:
    lines, script, sent = await run(tmp_path, package)
    (tool,) = (line["part"] for line in lines if line["type"] == "tool_use")
    assert (tool["tool"], tool["callID"], tool["state"]["status"]) == ("read", "call_0", "completed")
    assert tool["state"]["input"] == {"filePath": str(tmp_path / "folder" / "notes.txt")}
    last = [line["part"]["text"] for line in lines if line["type"] == "text"][-1]
    assert NOTES.strip() in last
    assert {path for path, _ in sent} == {dialects.get(dialect).path}
    first, second = script.asked
    assert {"read", "bash", "edit"} <= {tool.name for tool in first.tools}
    assert (script.called().name, script.result()) == ("read", last)
    assert len(second.messages) > len(first.messages)
    keep(f"opencode-{dialect}", f"OpenCode {offline.version('opencode-ai')}", sent, agents.OURS, [tmp_path])
