"""The real OpenCode with a scripted backend, through each of its three providers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from bench import offline

from dragoman import dialects
from support import agents
from support.agents import NOTES, Calling
from support.scripted_backend import IMPATIENT, served

PROVIDERS = pytest.mark.parametrize(
    ("package", "dialect"),
    [
        ("@ai-sdk/openai-compatible", "openai_chat"),
        ("@ai-sdk/openai", "openai_responses"),
        ("@ai-sdk/anthropic", "anthropic_messages"),
    ],
)


@pytest.mark.ran("OpenCode", "a script")
@PROVIDERS
async def test_opencode_reads_file_and_reports_content(
    package: str, dialect: str, tmp_path: Path, keep: Callable[..., None]
) -> None:
    folder = agents.folder_of(tmp_path)
    async with served(script := Calling("read", {"filePath": str(folder / "notes.txt")}), **IMPATIENT) as s:
        lines = await agents.opencode(s.url, tmp_path, folder, package)
    (tool,) = (line["part"] for line in lines if line["type"] == "tool_use")
    assert (tool["tool"], tool["callID"], tool["state"]["status"]) == ("read", "call_0", "completed")
    assert tool["state"]["input"] == script.arguments
    last = [line["part"]["text"] for line in lines if line["type"] == "text"][-1]
    assert NOTES.strip() in last
    assert {path for path, _ in s.sent} == {dialects.get(dialect).path}
    first, second = script.asked
    assert {"read", "bash", "edit"} <= {tool.name for tool in first.tools}
    assert (script.called().name, script.result()) == ("read", last)
    assert len(second.messages) > len(first.messages)
    keep(f"opencode-{dialect}", f"OpenCode {offline.version('opencode-ai')}", s.sent, agents.OURS, [tmp_path])
