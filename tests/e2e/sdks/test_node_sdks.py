"""The npm packages over HTTP, in one Node.js process: openai, @anthropic-ai/sdk, and Vercel's ai with its providers."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pytest
import pytest_asyncio
from bench import offline

from support.gateway import DEADLINE_S
from support.paths import SUPPORT
from support.scenarios import CALLING, DIED, QUESTION, SCENARIOS, SCHEMAS, WHOLE, expected, is_kept, play, told
from support.scripted_backend import IMPATIENT, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

DRIVER: Final = SUPPORT / "clients" / "drive.mjs"
ENDS: Final = {
    "chat": ("stop", "tool_calls", "stop", "length"),
    "responses": ("completed", "completed", "completed", "max_output_tokens"),
    "messages": ("end_turn", "tool_use", "refusal", "max_tokens"),
    "vercel": ("stop", "tool-calls", "content-filter", "length"),
}
"""Finish reasons for text, calls, a refusal, and the token limit."""
WAYS: Final = {
    **dict.fromkeys(("chat_create", "chat_stream", "run_tools", "run_tools_stream"), "chat"),
    **dict.fromkeys(("responses_create", "responses_events", "responses_stream"), "responses"),
    **dict.fromkeys(("messages_create", "messages_events", "messages_stream"), "messages"),
    **dict.fromkeys(("tool_runner", "tool_runner_stream"), "messages"),
    **{
        f"{way} {provider}": "vercel"
        for provider in ("openai_chat", "openai_responses", "openai_compatible", "anthropic")
        for way in ("generate_text", "stream_text")
    },
    "generate_text by reference": "vercel",
}
PACKAGES: Final = {
    way: {"chat": "openai for Node", "responses": "openai for Node", "messages": "@anthropic-ai/sdk"}.get(
        kind, "Vercel AI SDK"
    )
    for way, kind in WAYS.items()
}
WITHOUT_REASONING: Final = {"chat_stream", "run_tools_stream", "generate_text openai_chat", "stream_text openai_chat"}
"""They do not support `reasoning_content`: Vercel's provider ignores it, openai's helper keeps only its last delta."""

Told: TypeAlias = dict[str, dict[str, dict[str, Any]]]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def answers(keep: Callable[..., None]) -> Told:
    """The results of each SDK function for each scenario."""
    given = {"SCENARIOS": list(SCENARIOS), "SCHEMAS": SCHEMAS}
    async with served(play, names=list(SCENARIOS), **IMPATIENT) as s:
        process = await asyncio.create_subprocess_exec(
            *(offline.node(), "--input-type=module", "-", s.url),
            cwd=offline.CLIENTS.parent,
            env={"QUESTION": QUESTION, **{name: json.dumps(value) for name, value in given.items()}},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            said, complaints = await asyncio.wait_for(process.communicate(DRIVER.read_bytes()), DEADLINE_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, complaints.decode()) == (0, "")
    packages = ("openai", "@anthropic-ai/sdk", "ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic")
    versions = ", ".join(f"{name} {offline.version(name)}" for name in packages)
    keep("node_sdks", versions, [sent for sent in s.sent if is_kept(sent)], ours=("",))
    found: Told = json.loads(said)
    assert found.keys() == set(WAYS)
    return found


def wanted(way: str, scenario: str) -> dict[str, Any]:
    """The expected result, with the SDK's finish reason."""
    said = expected(scenario)
    text, calls, refused, _ = ENDS[WAYS[way]]
    shows_refusal = WAYS[way] != "vercel"
    return {
        "text": said.text if shows_refusal else said.text + said.refusal,
        "thoughts": said.thoughts,
        "refusal": said.refusal if shows_refusal else "",
        "calls": [list(call) for call in said.calls],
        "end": calls if scenario in CALLING else refused if scenario == "refusal" else text,
    }


@pytest.mark.ran(PACKAGES, "a script")
@pytest.mark.parametrize("scenario", WHOLE)
@pytest.mark.parametrize("way", WAYS)
async def test_node_sdk_gets_all_content_and_sends_tool_results(way: str, scenario: str, answers: Told) -> None:
    got = answers[way][scenario]
    want = wanted(way, scenario)
    if way in WITHOUT_REASONING:
        want["thoughts"] = got["said"]["thoughts"]
    assert got["said"] == want
    if scenario in CALLING:
        assert got["last"] == told(scenario)
    assert got.get("runs", want["calls"]) in (want["calls"], [call[1:] for call in want["calls"]])


@pytest.mark.parametrize("way", WAYS)
async def test_truncated_call_is_not_run(way: str, answers: Told) -> None:
    got = answers[way]["cut"]
    if way.startswith("run_tools"):
        assert got == {"error": "Could not parse response content as the length limit was reached"}
        return
    said = got["said"]
    assert said["end"] == ENDS[WAYS[way]][3]
    assert got.get("runs", []) == []
    assert said["calls"] == []


@pytest.mark.parametrize("way", WAYS)
async def test_stream_that_breaks_off_raises_error(way: str, answers: Told) -> None:
    got = answers[way]["broken"]
    assert set(got) == {"error"}
    assert DIED in got["error"]
