"""The real Codex with a scripted backend; Codex supports only OpenAI Responses."""

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench import offline

from dragoman.core.events import (
    AnyEvent,
    Finish,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Usage
from support import agents
from support.agents import NOTES, Calling
from support.codex_script import OURS, PATCH
from support.scripted_backend import IMPATIENT, Scripted, Sent, served

pytestmark = pytest.mark.ran("Codex", "a script")
CODEX = f"Codex {offline.version('@openai/codex')}"


@dataclass
class Run:
    items: list[dict[str, Any]]
    """The completed items of the run."""
    script: Calling
    sent: list[Sent]

    def of(self, kind: str) -> dict[str, Any]:
        """Returns the only completed item of this type."""
        (item,) = (item for item in self.items if item["type"] == kind)
        return item


async def run(home: Path, model: str, tool: str, arguments: dict[str, object]) -> Run:
    """Runs Codex: the model calls the tool once, then returns the text of its result."""
    async with served(script := Calling(tool, arguments), **IMPATIENT, alias=model) as s:
        lines = await agents.codex(s.url, home, agents.folder_of(home), model)
    assert lines[-1]["type"] == "turn.completed", lines
    return Run([line["item"] for line in lines if line["type"] == "item.completed"], script, s.sent)


async def test_codex_runs_function_and_sends_result(tmp_path: Path, keep: Callable[..., None]) -> None:
    done = await run(tmp_path, "m", "exec_command", {"cmd": "cat notes.txt"})
    assert done.of("command_execution")["aggregated_output"] == NOTES
    assert NOTES in done.of("agent_message")["text"]
    first, _ = done.script.asked
    assert {"exec_command", "write_stdin"} <= {tool.name for tool in first.tools if tool.kind == "function"}
    call = done.script.called()
    assert (call.id, call.name, json.loads(call.arguments)) == ("call_0", "exec_command", {"cmd": "cat notes.txt"})
    keep("codex-function", CODEX, done.sent, OURS, [tmp_path])


async def test_codex_runs_custom_tool(tmp_path: Path, keep: Callable[..., None]) -> None:
    done = await run(tmp_path, "gpt-5.5", "apply_patch", {"input": PATCH})
    assert (tmp_path / "folder" / "new.txt").read_text() == 'Grüße, "Ada"\n'
    assert "new.txt" in done.of("agent_message")["text"]
    offered = next(tool for tool in done.script.asked[0].tools if tool.name == "apply_patch")
    assert "lark grammar" in offered.parameters
    call = done.script.called()
    assert json.loads(call.arguments) == {"input": PATCH}
    keep("codex-custom", CODEX, done.sent, OURS, [tmp_path])


async def test_codex_runs_namespaced_tool(tmp_path: Path, keep: Callable[..., None]) -> None:
    line = 'text((await tools.exec_command({cmd: "cat notes.txt"})).output)'
    done = await run(tmp_path, "gpt-6-astra", "functions__exec", {"input": line})
    assert done.of("command_execution")["aggregated_output"] == NOTES
    assert NOTES in done.of("agent_message")["text"]
    call = done.script.called()
    assert (call.name, json.loads(call.arguments)) == ("functions__exec", {"input": line})
    keep("codex-namespace", CODEX, done.sent, OURS, [tmp_path])


async def test_codex_compacts_and_continues_from_summary(tmp_path: Path) -> None:
    """Codex asks a provider named OpenAI to compact above the token limit, here after the tool result."""
    asked: list[str] = []

    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        said = str([message.parts for message in request.messages])
        yield Start("", "", 0)
        if "about to be replaced by a summary" in said:
            asked.append("summary")
            yield TextDelta(f"It read the notes: {NOTES.strip()}")
        elif "Summary of the conversation" in said:
            asked.append("after")
            yield TextDelta(f"From the summary: {NOTES.strip() in said and 'exec_command' not in said}")
        else:
            asked.append("before")
            yield ToolCallStart(0, "call_0", "exec_command")
            yield ToolCallDelta(0, '{"cmd": "cat notes.txt"}')
            yield ToolCallEnd(0)
        yield UsageUpdate(Usage(100 if asked[-1] == "after" else 50_000, 10))
        yield Finish("tool_calls" if asked[-1] == "before" else "stop")

    async with served(script, **IMPATIENT) as s:
        provider = f'{{name="OpenAI",base_url="{s.url}/v1",env_key="KEY",wire_api="responses"}}'
        more = ("-c", f"model_providers.test={provider}", "-c", "model_auto_compact_token_limit=20000")
        lines = await agents.codex(s.url, tmp_path, agents.folder_of(tmp_path), "m", *more)
    assert asked == ["before", "summary", "after"]
    triggered = [json.loads(sent.body)["input"][-1]["type"] for sent in s.sent]
    assert triggered == ["message", "compaction_trigger", "compaction"], triggered
    assert lines[-1]["type"] == "turn.completed", lines
    assert [line["item"]["text"] for line in lines if line.get("item", {}).get("type") == "agent_message"] == [
        "From the summary: True"
    ]
