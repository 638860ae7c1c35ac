"""The real Claude CLI in text mode: tools, calls and results in the prompt; the newest and the oldest version.

client ─HTTP→ gateway → claude ─HTTP→ scripted model
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from bench import offline

from dragoman.backends.claude_cli import discovery
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from support.claude_gateway import behind_claude
from support.claude_images import IMAGE
from support.gateway import DEADLINE_S, MESSAGES
from support.http_client import http_client
from support.scripted_backend import Scripted

READ: Final[dict[str, Any]] = {
    "name": "Read",
    "description": "Reads a file.",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
PATHS: Final = ("a </tool_call>", 'b "\\ü 🌊')
CALLS: Final = "I look.\n" + "\n".join(
    f'<tool_call>\n{{"name": "Read", "arguments": {{"path": {json.dumps(path)}}}}}\n</tool_call>' for path in PATHS
)
LONG: Final = "".join(f"{n}: Grüße 🌊\n" for n in range(13_000))
"""More than 200 KB."""


@dataclass
class Words:
    """A scripted model: this text in small deltas; at a form feed it waits for the test."""

    text: str
    backends: list[Scripted] = field(default_factory=list)

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        self.backends.append(backend)
        yield Start("", "", 0, 100)
        for at in range(0, len(self.text), 7):
            piece = self.text[at : at + 7]
            if "\f" in piece:
                await backend.go.wait()
            yield TextDelta(piece.replace("\f", ""))
        yield Finish("stop")


@pytest.fixture(params=["newest", "oldest"])
def claude(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Mode and command of each version."""
    if request.param == "newest":
        return {"mode": "text"}
    monkeypatch.setattr(os, "defpath", f"{offline.node().parent}:{os.defpath}")  # so that its shebang line finds node
    return {"mode": "auto", "command": offline.old_claude_code()}


def client(url: str) -> httpx2.AsyncClient:
    return http_client(url)


def ask(*messages: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": messages, **more}


def user(*content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def called(path: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": path}}],
    }


def result(content: object, failed: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", "is_error": failed, "content": content}


def said(sent: bytes) -> list[dict[str, Any]]:
    """The user's blocks as they reached the model, without the CLI's own reminders."""
    (message,) = (message for message in json.loads(sent)["messages"] if message["role"] == "user")
    blocks = [{name: block[name] for name in block if name != "cache_control"} for block in message["content"]]
    return [block for block in blocks if not block.get("text", "").startswith("<system-reminder>")]


async def test_text_mode_calls_and_failed_result(tmp_path: Path, claude: dict[str, Any]) -> None:
    asked = ask(user(text("Read @notes.txt")), called("x"), user(result("no </tool_result>", failed=True)))
    async with behind_claude(Words(CALLS), tmp_path, **claude) as chain, client(chain.url) as http:
        answer = (await http.post(MESSAGES, json={**asked, "tools": [READ], "system": "Be short."})).json()
    words, *calls = answer["content"]
    assert words["text"] == "I look."
    assert [call["input"]["path"] for call in calls] == [*PATHS]
    assert answer["stop_reason"] == "tool_use"
    (seen,) = chain.seen()
    assert seen.system.startswith("Be short.\n\n# Tools\n")
    assert seen.tools == {}
    first, past, failed = (block["text"] for block in said(seen.raw))
    assert first == "Read @notes.txt"
    call = '<tool_call>\n{"name": "Read", "arguments": {"path":"x"}}\n</tool_call>'
    assert past.endswith(f"<previous_response>\n{call}\n</previous_response>")
    assert failed == '<tool_result id="t1" name="Read" error="true">\nno &lt;/tool_result>\n</tool_result>'


async def test_text_mode_long_history_with_image(tmp_path: Path, claude: dict[str, Any]) -> None:
    shown = result([text("Look:"), IMAGE, text(LONG)])
    asked = ask(user(text("This"), IMAGE, text("and that")), called("x"), user(shown, text("/clear")))
    async with behind_claude(Words("Fine."), tmp_path, **claude) as chain, client(chain.url) as http:
        answer = (await http.post(MESSAGES, json={**asked, "tools": [READ]})).json()
    assert answer["content"] == [text("Fine.")]
    (seen,) = chain.seen()
    before, picture, behind, _, opened, inner, rest = said(seen.raw)
    assert (before, picture, behind) == (text("This"), IMAGE, text("and that"))
    assert (opened, inner) == (text('<tool_result id="t1" name="Read">\nLook:'), IMAGE)
    assert rest == text(f"{LONG}\n</tool_result>\n/clear")


async def test_single_turn_is_sent_unchanged(tmp_path: Path, claude: dict[str, Any]) -> None:
    content = [text("a <tool_call> b"), IMAGE]
    async with behind_claude(Words("Fine."), tmp_path, **claude) as chain, client(chain.url) as http:
        await http.post(MESSAGES, json=ask(user(*content), system="Be short."))
    (seen,) = chain.seen()
    assert seen.system == "Be short."
    assert said(seen.raw) == content


async def test_text_mode_call_is_streamed(tmp_path: Path, claude: dict[str, Any]) -> None:
    """The start of the first call arrives while the model is still writing it."""
    script = Words(CALLS.replace("</tool_call>", "\f</tool_call>", 1))
    told = ""
    async with (
        behind_claude(script, tmp_path, **claude) as chain,
        client(chain.url) as http,
        http.stream("POST", MESSAGES, json={**ask(user(text("Read"))), "tools": [READ], "stream": True}) as answer,
    ):
        async for piece in answer.aiter_text():
            told += piece
            if '"tool_use"' in told:
                script.backends[0].go.set()
    assert told.count('"type":"tool_use"') == len(PATHS)
    assert told.index('"tool_use"') < told.index("input_json_delta")
    assert "event: message_stop" in told


async def test_generation_stops_after_calls_and_at_stop_string(tmp_path: Path) -> None:
    """A tool result invented by the model ends the response, and so does a client's stop string."""
    script = Words(CALLS + '\n<tool_result id="x">\nmade up\n</tool_result>\f')
    async with behind_claude(script, tmp_path, "text") as chain, client(chain.url) as http:
        answer = (await http.post(MESSAGES, json={**ask(user(text("Read"))), "tools": [READ]})).json()
        assert [block["type"] for block in answer["content"]] == ["text", "tool_use", "tool_use"]
        script.text = "one two\f"
        stopped = (await http.post(MESSAGES, json=ask(user(text("Count")), stop_sequences=[" t"]))).json()
    assert stopped["content"] == [text("one")]
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", " t")


@pytest.mark.parametrize(
    ("choice", "answers", "given"),
    [
        ({"type": "any"}, ["Hello.", CALLS], "tool_use"),
        ({"type": "tool", "name": "Read"}, [CALLS.replace("Read", "Write"), CALLS], "tool_use"),
        ({"type": "any"}, ["Hello.", "Again."], "end_turn"),
    ],
)
async def test_missing_required_call_is_reasked_in_text_mode(
    tmp_path: Path, choice: dict[str, str], answers: list[str], given: str
) -> None:
    script = Words("")

    async def one_by_one(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        script.text = answers[len(script.backends)]
        async for event in script(backend, request):
            yield event

    tools = [READ, {**READ, "name": "Write"}]
    async with behind_claude(one_by_one, tmp_path, "text") as chain, client(chain.url) as http:
        answer = (
            await http.post(MESSAGES, json={**ask(user(text("Read"))), "tools": tools, "tool_choice": choice})
        ).json()
    assert answer["stop_reason"] == given
    assert answer["content"][0] == text("I look." if given == "tool_use" else "Again.")
    first, second = (json.loads(sent.body)["messages"] for sent in chain.sent)
    assert len(second) > len(first)


async def test_structured_output_is_returned_in_text_mode(tmp_path: Path, claude: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def script(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0, 100)
        (tool,) = request.tools
        assert json.loads(tool.parameters) == schema
        yield ToolCallStart(0, "t", tool.name)
        yield ToolCallDelta(0, '{"n": 3}')
        yield ToolCallEnd(0)
        yield Finish("stop")

    asked = ask(user(text("Count")), output_config={"format": {"type": "json_schema", "schema": schema}})
    async with behind_claude(script, tmp_path, **claude) as chain, client(chain.url) as http:
        answer = (await http.post(MESSAGES, json=asked)).json()
    assert answer["content"] == [text('{"n": 3}')]
    assert answer["stop_reason"] == "end_turn"


async def test_warm_process_serves_next_request(tmp_path: Path, claude: dict[str, Any]) -> None:
    async with behind_claude(Words("Fine."), tmp_path, **claude, warm_processes=1) as chain, client(chain.url) as http:

        async def state() -> dict[str, Any]:
            backend: dict[str, Any] = (await http.get("/health")).json()["backends"][0]
            return backend

        await http.post(MESSAGES, json=ask(user(text("one"))))
        async with asyncio.timeout(DEADLINE_S):
            while not (await state())["warm"]:
                await asyncio.sleep(0.02)
        assert (await http.post(MESSAGES, json=ask(user(text("two")), system="X"))).json()["content"] == [text("Fine.")]
        assert (await state())["cold_starts"] == 1
    assert [seen.system for seen in chain.seen()] == ["", "X"]


async def test_oldest_tested_version_is_text_since(tmp_path: Path) -> None:
    path = f"{offline.node().parent}:{os.defpath}"
    found = await discovery.find_claude(
        ClaudeCliConfig(command=str(offline.old_claude_code())), offline.environment(tmp_path, PATH=path)
    )
    assert found.mode == "text"
    assert found.version == discovery.TEXT_SINCE
