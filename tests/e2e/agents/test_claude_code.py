"""Claude Code on recorded texts of a small model: first its recorded requests, then the program itself."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from bench import claude_code, offline

from dragoman import dialects
from dragoman.config.server import ServerConfig
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request, Text, ToolCall, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support import agents
from support.agents import NOTES, OURS, Calling
from support.gateway import DEADLINE_S
from support.scripted_backend import IMPATIENT, Scripted, served

FOLDER = Path("/nowhere")


def asked() -> list[dict[str, Any]]:
    _, *lines = (claude_code.DATA / "requests.jsonl").read_text().replace(claude_code.FOLDER, str(FOLDER)).splitlines()
    return [json.loads(line) for line in lines]


async def answer(request: dict[str, Any]) -> "anthropic.types.Message":
    """The gateway's response, assembled by the vendor's SDK."""
    app = App(Gateway([claude_code.recorded_backend(FOLDER)]), ServerConfig())
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1")
    known = {"model", "messages", "system", "tools", "max_tokens", "thinking"}
    body = {k: v for k, v in request["body"].items() if k != "stream"}
    fields: Any = {k: v for k, v in body.items() if k in known}
    more = {k: v for k, v in body.items() if k not in known}
    sdk = anthropic.AsyncAnthropic(api_key="none", base_url="http://127.0.0.1", http_client=http)
    asking = sdk.messages.stream(**fields, extra_body=more, extra_headers=request["headers"])
    async with sdk, asking as events:
        return await events.get_final_message()


def test_recorded_claude_code_requests_are_parsed() -> None:
    first, second = (
        dialects.get("anthropic_messages").read_request(json.dumps(line["body"]).encode()) for line in asked()
    )
    assert [tool.name for tool in first.tools] == ["Read"]
    assert {"thinking", "context_management", "output_config", "metadata"} <= set(first.extra)
    question, call, result = (m.parts[0] for m in second.messages if m.role != "system")
    assert question == Text(claude_code.PROMPT)
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert result.call_id == call.id


async def test_first_recorded_request_gets_tool_call() -> None:
    message = await answer(asked()[0])
    (call,) = message.content
    assert isinstance(call, anthropic.types.ToolUseBlock)
    assert (call.name, call.input) == ("Read", {"file_path": f"{FOLDER}/notes.txt", "allow_large": True})
    assert message.stop_reason == "tool_use"


async def test_second_recorded_request_gets_text() -> None:
    message = await answer(asked()[1])
    (text,) = message.content
    assert isinstance(text, anthropic.types.TextBlock)
    assert claude_code.NOTES in text.text
    assert message.stop_reason == "end_turn"


@pytest.mark.ran("Claude Code", "a script")
@pytest.mark.parametrize("name", ["bare", "full"])
async def test_claude_code_reads_file_and_reports_content(name: str, tmp_path: Path, keep: Callable[..., None]) -> None:
    """With few tools, and with the default dozen and tens of kilobytes of instructions."""
    folder = agents.folder_of(tmp_path)
    async with served(script := Calling("Read", {"file_path": str(folder / "notes.txt")}), **IMPATIENT) as s:
        told = await agents.claude_code(s.url, tmp_path, folder, *(["--bare"] if name == "bare" else []))
    run = claude_code.Run(told)
    (call,) = run.parts("assistant", "tool_use")
    assert (call["id"], call["name"], call["input"]) == ("call_0", "Read", script.arguments)
    (result,) = run.parts("user", "tool_result")
    assert NOTES.strip() in result["content"]
    assert run.end()["result"] == script.result()
    assert (run.end()["is_error"], run.end()["num_turns"]) == (False, 2)
    assert (len(script.asked[0].tools) > 8) == (name == "full")
    keep(f"claude_code-{name}", f"Claude Code {offline.version('@anthropic-ai/claude-code')}", s.sent, OURS, [tmp_path])


def test_recorded_requests_contain_no_vendor_text() -> None:
    for line in asked():
        assert {block["text"] for block in line["body"]["system"]} == {claude_code.OMITTED}
        assert {tool["description"] for tool in line["body"]["tools"]} == {claude_code.OMITTED}


@pytest.mark.ran("Claude Code", "Qwen2.5-Coder")
def test_claude_code_replay_with_recorded_model() -> None:
    """Installed by `make test-clients`; runs with its own home and, where the system allows it, without a network."""
    offline.claude_code()
    command = [sys.executable, "-m", "bench.claude_code", "--replay"]
    root = Path(claude_code.__file__).parent.parent
    did = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert did.returncode == 0, did.stdout + did.stderr
    assert "tool_use    Read" in did.stdout
    assert f"tool_result 1 {claude_code.NOTES}" in did.stdout


async def test_claude_code_discovers_models(tmp_path: Path) -> None:
    """The discovered models are in its cache, and its request reaches the selected model."""
    quiet = {name: value for name, value in claude_code.QUIET.items() if "NONESSENTIAL" not in name}
    asked: list[str] = []

    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        asked.append(request.model)
        yield Start("", "", 0)
        yield TextDelta("Hello")
        yield Finish("stop")

    async with served(script, alias="qwen/qwen3:8b[1m]") as s:
        env = {"ANTHROPIC_BASE_URL": s.url, "ANTHROPIC_API_KEY": "none", **quiet}
        env["CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY"] = "1"
        command = [offline.claude_code(), "-p", "hi", "--model", "claude-qwen/qwen3:8b~5b1m~5d"]
        said = await agents.run(s.url, tmp_path, tmp_path, command, **env)
    assert (said.strip(), asked) == ("Hello", ["m"])
    found = json.loads((tmp_path / ".claude/cache/gateway-models.json").read_text())["models"]
    assert found == [
        {"id": "claude-m", "display_name": "m"},
        {"id": "claude-n", "display_name": "n"},
        {"id": "claude-qwen/qwen3:8b~5b1m~5d", "display_name": "qwen/qwen3:8b[1m]"},
    ]


@pytest.mark.parametrize(
    ("lines", "failing"),
    [
        ([], "Read was not called"),
        ([("assistant", {"type": "tool_use", "id": "1", "name": "Read"})], "no result of Read contains"),
        ([("result", {"is_error": True})], "expected an end without an error"),
    ],
)
def test_failed_claude_code_run_is_detected(lines: list[tuple[str, dict[str, Any]]], failing: str) -> None:
    told = [{"type": kind, "message": {"content": [part]}, **part} | {"type": kind} for kind, part in lines]
    assert any(failing in each for each in claude_code.Run(lines=told).failures())
