"""Codex, the real one, against a backend that plays a script: it speaks OpenAI Responses and nothing else."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench import offline

import agents
from agents import NOTES, Calling
from scripted import IMPATIENT, Sent, served

PATCH = '*** Begin Patch\n*** Add File: new.txt\n+Grüße, "Ada"\n*** End Patch\n'
OURS = (*agents.OURS, PATCH[:20], "tools.exec_command")
pytestmark = pytest.mark.ran("Codex", "a script")
CODEX = f"Codex {offline.version('@openai/codex')}"


@dataclass
class Run:
    items: list[dict[str, Any]]
    """What it told of its run."""
    script: Calling
    sent: list[Sent]

    def of(self, kind: str) -> dict[str, Any]:
        """The one item of this type, once it was complete."""
        (item,) = (item for item in self.items if item["type"] == kind)
        return item


async def run(home: Path, model: str, tool: str, arguments: dict[str, object]) -> Run:
    """Codex asks, is told to run the tool, and gets the result's text for an answer."""
    async with served(script := Calling(tool, arguments), **IMPATIENT, alias=model) as s:
        lines = await agents.codex(s.url, home, agents.folder_of(home), model)
    assert lines[-1]["type"] == "turn.completed", lines
    return Run([line["item"] for line in lines if line["type"] == "item.completed"], script, s.sent)


async def test_it_runs_a_function_and_sends_its_result(tmp_path: Path, keep: Callable[..., None]) -> None:
    done = await run(tmp_path, "m", "exec_command", {"cmd": "cat notes.txt"})
    assert done.of("command_execution")["aggregated_output"] == NOTES
    assert NOTES in done.of("agent_message")["text"]
    first, _ = done.script.asked
    assert {"exec_command", "write_stdin"} <= {tool.name for tool in first.tools if tool.kind == "function"}
    call = done.script.called()
    assert (call.id, call.name, json.loads(call.arguments)) == ("call_0", "exec_command", {"cmd": "cat notes.txt"})
    keep("codex-function", CODEX, done.sent, OURS, [tmp_path])


async def test_it_runs_a_tool_of_free_text(tmp_path: Path, keep: Callable[..., None]) -> None:
    done = await run(tmp_path, "gpt-5.5", "apply_patch", {"input": PATCH})
    assert (tmp_path / "folder" / "new.txt").read_text() == 'Grüße, "Ada"\n'
    assert "new.txt" in done.of("agent_message")["text"]
    offered = next(tool for tool in done.script.asked[0].tools if tool.name == "apply_patch")
    assert "lark grammar" in offered.parameters
    call = done.script.called()
    assert json.loads(call.arguments) == {"input": PATCH}
    keep("codex-custom", CODEX, done.sent, OURS, [tmp_path])


async def test_it_runs_a_tool_of_a_namespace_that_came_as_an_item(tmp_path: Path, keep: Callable[..., None]) -> None:
    line = 'text((await tools.exec_command({cmd: "cat notes.txt"})).output)'
    done = await run(tmp_path, "gpt-6-astra", "functions__exec", {"input": line})
    assert done.of("command_execution")["aggregated_output"] == NOTES
    assert NOTES in done.of("agent_message")["text"]
    call = done.script.called()
    assert (call.name, json.loads(call.arguments)) == ("functions__exec", {"input": line})
    keep("codex-namespace", CODEX, done.sent, OURS, [tmp_path])
