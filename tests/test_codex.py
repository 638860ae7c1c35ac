"""Codex, the real one, against a backend that plays a script: it speaks OpenAI Responses and nothing else."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import offline

from dragoman.core import values as v
from dragoman.core.events import (
    AnyEvent,
    Finish,
    ReasoningDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageUpdate,
)
from gateway import DEADLINE_S
from scripted import Scripted, served

PATCH = '*** Begin Patch\n*** Add File: new.txt\n+Grüße, "Ada"\n*** End Patch\n'
PLAIN = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--ephemeral", "--json")
NOWHERE = "http://127.0.0.1:9"
"""Takes the place of every other host."""


@dataclass
class Run:
    items: list[dict[str, Any]]
    """What it told of its run."""
    asked: list[v.Request]

    def of(self, kind: str) -> dict[str, Any]:
        """The one item of this type, once it was complete."""
        (item,) = (item for item in self.items if item["type"] == kind)
        return item


async def run(home: Path, model: str, tool: str, arguments: dict[str, object]) -> Run:
    """Codex asks, is told to run the tool, and gets the result's text for an answer."""
    asked: list[v.Request] = []

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request)
        results = [p for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
        yield Start("", "", 0)
        yield ReasoningDelta("hm")
        if results:
            yield TextDelta("".join(part.text for part in results[-1].parts if isinstance(part, v.Text)))
        else:
            text = json.dumps(arguments)
            yield ToolCallStart(0, "call_0", tool)
            for at in range(0, len(text), 7):
                yield ToolCallDelta(0, text[at : at + 7])
            yield ToolCallEnd(0)
        yield UsageUpdate(v.Usage(100, 5))
        yield Finish("stop")

    folder = home / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("pomegranate\n")
    async with served(script, alias=model) as s:
        provider = f'{{name="test",base_url="{s.url}/v1",env_key="KEY",wire_api="responses"}}'
        settings = {"analytics.enabled": "false", "model_provider": "test", "model_providers.test": provider}
        process = await asyncio.create_subprocess_exec(
            offline.codex(),
            *("exec", *PLAIN, "--disable", "plugins", "--disable", "apps", "-m", model),
            *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            "Read notes.txt and say what it holds",
            cwd=folder,
            env=dict(offline.environment(home, KEY="k", HTTPS_PROXY=NOWHERE, HTTP_PROXY=NOWHERE, NO_PROXY="127.0.0.1")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            said, complaints = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, complaints.decode()
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[-1]["type"] == "turn.completed", said
    return Run([line["item"] for line in lines if line["type"] == "item.completed"], asked)


async def test_it_runs_a_function_and_sends_its_result(tmp_path: Path) -> None:
    done = await run(tmp_path, "m", "exec_command", {"cmd": "cat notes.txt"})
    assert done.of("command_execution")["aggregated_output"] == "pomegranate\n"
    assert "pomegranate" in done.of("agent_message")["text"]
    first, second = done.asked
    assert {"exec_command", "write_stdin"} <= {tool.name for tool in first.tools if tool.kind == "function"}
    (call,) = (p for m in second.messages for p in m.parts if isinstance(p, v.ToolCall))
    assert (call.id, call.name, json.loads(call.arguments)) == ("call_0", "exec_command", {"cmd": "cat notes.txt"})


async def test_it_runs_a_tool_of_free_text(tmp_path: Path) -> None:
    done = await run(tmp_path, "gpt-5.5", "apply_patch", {"input": PATCH})
    assert (tmp_path / "folder" / "new.txt").read_text() == 'Grüße, "Ada"\n'
    assert "new.txt" in done.of("agent_message")["text"]
    offered = next(tool for tool in done.asked[0].tools if tool.name == "apply_patch")
    assert "lark grammar" in offered.parameters
    (call,) = (p for m in done.asked[1].messages for p in m.parts if isinstance(p, v.ToolCall))
    assert json.loads(call.arguments) == {"input": PATCH}


async def test_it_runs_a_tool_of_a_namespace_that_came_as_an_item(tmp_path: Path) -> None:
    line = 'text((await tools.exec_command({cmd: "cat notes.txt"})).output)'
    done = await run(tmp_path, "gpt-6-astra", "functions__exec", {"input": line})
    assert done.of("command_execution")["aggregated_output"] == "pomegranate\n"
    assert "pomegranate" in done.of("agent_message")["text"]
    (call,) = (p for m in done.asked[1].messages for p in m.parts if isinstance(p, v.ToolCall))
    assert (call.name, json.loads(call.arguments)) == ("functions__exec", {"input": line})
