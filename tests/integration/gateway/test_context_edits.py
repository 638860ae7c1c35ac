"""Removing edits of Anthropic's `context_management`, for servers that do not support them."""

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import anthropic
import pytest
from msgspec import Raw

from dragoman import dialects
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core.backend import Backend
from dragoman.core.errors import RequestError
from dragoman.core.messages import Reasoning, Request, ToolCall, ToolResult
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway.gateway import Gateway
from dragoman.wire.context_edits import CLEARED, EditedRequest, apply_edits
from support import cpu_cost
from support.claude_requests import chain, warned
from support.fake_upstream import server
from support.gateway import MESSAGES
from support.http_client import http_client
from support.responses_upstream import BEHIND, answers, gateway
from support.scripted_backend import Scripted, plain, serving

USES, TURNS = "clear_tool_uses_20250919", "clear_thinking_20251015"
KEPT_ALL = {"edits": [{"type": TURNS, "keep": "all"}]}
ONE_KEPT = {"type": USES, "trigger": {"type": "tool_uses", "value": 1}, "keep": {"type": "tool_uses", "value": 1}}
LONG = "one line of a file\n" * 60


def history(uses: int, *, name: str = "read", said: str = LONG) -> list[dict[str, Any]]:
    """A conversation: the user's question, then `uses` calls, each after reasoning and with its result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for n in range(uses):
        thought = {"type": "thinking", "thinking": f"thought {n}", "signature": "s"}
        call = {"type": "tool_use", "id": f"t{n}", "name": name, "input": {"path": f"/{n}"}}
        messages.append({"role": "assistant", "content": [thought, call]})
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"result {n} {said}"}
        messages.append({"role": "user", "content": [result]})
    return messages


def amount(unit: str, value: int) -> dict[str, Any]:
    return {"type": unit, "value": value}


def apply_to(messages: list[dict[str, Any]], *edits: dict[str, Any]) -> EditedRequest:
    body = {"model": "m", "max_tokens": 9, "messages": messages, "context_management": {"edits": edits}}
    return apply_edits(dialects.get("anthropic_messages").read_request(json.dumps(body)), GENERIC)


def results(request: Request) -> str:
    """One letter for each tool result: `k` kept, `c` cleared."""
    found = [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]
    return "".join("c" if CLEARED in str(result.parts) else "k" for result in found)


def reasoning_texts(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Reasoning)]


@pytest.mark.parametrize(
    ("uses", "edit", "left"),
    [
        (6, {}, "kkkkkk"),  # the trigger is 100,000 tokens
        (4, {"trigger": amount("tool_uses", 4)}, "kkkk"),
        (5, {"trigger": amount("tool_uses", 4)}, "cckkk"),  # keep is 3
        (6, {"trigger": amount("tool_uses", 4)}, "cckkkk"),  # nothing more until the trigger is exceeded again
        (7, {"trigger": amount("tool_uses", 4)}, "cccckkk"),
        (3, {"trigger": amount("tool_uses", 0), "keep": amount("tool_uses", 0)}, "ccc"),
        (3, {"trigger": amount("tool_uses", 0), "keep": amount("tool_uses", 9)}, "kkk"),
        (3, {"trigger": amount("input_tokens", 500), "keep": amount("tool_uses", 1)}, "cck"),
        (3, {"trigger": amount("input_tokens", 50_000), "keep": amount("tool_uses", 1)}, "kkk"),
        (5, {**ONE_KEPT, "clear_at_least": amount("input_tokens", 500)}, "cccck"),
        (5, {**ONE_KEPT, "clear_at_least": amount("input_tokens", 900_000)}, "kkkkk"),
        (3, {**ONE_KEPT, "exclude_tools": ["read"]}, "kkk"),
        (3, {**ONE_KEPT, "exclude_tools": ["other"], "clear_at_least": None}, "cck"),
    ],
)
def test_tool_results_are_cleared_by_trigger_and_keep(uses: int, edit: dict[str, Any], left: str) -> None:
    asked = apply_to(history(uses), {"type": USES, **edit})
    assert results(asked.request) == left
    applied = json.loads(asked.applied)["applied_edits"]
    cleared = left.count("c")
    assert [each["cleared_tool_uses"] for each in applied] == ([cleared] if cleared else [])
    assert [each["cleared_input_tokens"] > 100 * cleared for each in applied] == ([True] if cleared else [])
    assert not asked.warnings
    assert "context_management" not in asked.request.extra
    calls = [part.id for message in asked.request.messages for part in message.parts if isinstance(part, ToolCall)]
    assert calls == [f"t{n}" for n in range(uses)]


@pytest.mark.parametrize(("inputs", "left"), [(None, 0), (False, 0), (True, 2), (["read"], 2), (["other"], 0)])
def test_tool_inputs_are_cleared_only_on_request(inputs: object, left: int) -> None:
    asked = apply_to(history(3), {**ONE_KEPT, "clear_tool_inputs": inputs}).request
    calls = [part.arguments for message in asked.messages for part in message.parts if isinstance(part, ToolCall)]
    assert [arguments for arguments in calls if arguments == "{}"] == ["{}"] * left
    assert "/2" in calls[-1]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ({}, ["thought 0", "thought 1"]),
        ({"keep": amount("thinking_turns", 1)}, ["thought 0", "thought 1"]),
        ({"keep": amount("thinking_turns", 2)}, ["thought 0", "thought 0", "thought 1"]),
        ({"keep": amount("thinking_turns", 9)}, ["thought 0", "thought 0", "thought 0", "thought 1"]),
        ({"keep": "all"}, ["thought 0", "thought 0", "thought 0", "thought 1"]),
        ({"keep": {"type": "all"}}, ["thought 0", "thought 0", "thought 0", "thought 1"]),
    ],
)
def test_reasoning_of_old_turns_is_cleared(keep: dict[str, Any], left: list[str]) -> None:
    turns = [message for n in range(2) for message in json.loads(json.dumps(history(1)).replace('"t0"', f'"u{n}"'))]
    asked = apply_to([*turns, *history(2)], {"type": TURNS, **keep})
    assert reasoning_texts(asked.request) == left
    gone = 4 - len(left)
    (report,) = json.loads(asked.applied)["applied_edits"] or [{"cleared_thinking_turns": 0}]
    assert report["cleared_thinking_turns"] == gone


def test_message_with_only_reasoning_is_removed() -> None:
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    asked = apply_to([history(0)[0], thought, *history(1)], {"type": TURNS})
    assert [message.role for message in asked.request.messages] == ["user", "user", "assistant", "user"]


def test_edited_prefix_is_stable_until_next_clearing() -> None:
    edit = {"type": USES, "trigger": amount("input_tokens", 2_000), "keep": amount("tool_uses", 1)}
    sent = [apply_to(history(uses), edit).request for uses in range(1, 30)]
    pairs = list(itertools.pairwise(sent))
    again = [later.messages[: len(before.messages)] == before.messages for before, later in pairs]
    cleared = [results(before).count("c") < results(later).count("c") for before, later in pairs]
    assert again == [not each for each in cleared]
    assert 1 < sum(cleared) < 12


def test_unknown_edit_is_reported_and_others_are_applied() -> None:
    asked = apply_to(history(3), {"type": "compact_20260112", "trigger": {}}, ONE_KEPT)
    assert [warning.label for warning in asked.warnings] == ["content_dropped: context_management.compact_20260112"]
    assert results(asked.request) == "cck"


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (1, "edits[0]"),
        ({}, "edits[0]"),
        ({"type": TURNS, "keep": "none"}, "edits[0].keep"),
        ({"type": TURNS, "keep": amount("thinking_turns", 0)}, "edits[0].keep.value"),
        ({"type": TURNS, "keep": amount("tool_uses", 1)}, "edits[0].keep.type"),
        ({"type": USES, "trigger": 5}, "edits[0].trigger"),
        ({"type": USES, "trigger": amount("words", 5)}, "edits[0].trigger.type"),
        ({"type": USES, "keep": amount("tool_uses", -1)}, "edits[0].keep.value"),
        ({"type": USES, "clear_at_least": {"type": "input_tokens"}}, "edits[0].clear_at_least"),
        ({"type": USES, "exclude_tools": "read"}, "edits[0].exclude_tools"),
        ({"type": USES, "clear_tool_inputs": 1}, "edits[0].clear_tool_inputs"),
    ],
)
def test_invalid_edit_is_rejected(edit: Any, path: str) -> None:
    with pytest.raises(RequestError) as error:
        apply_to(history(1), edit)
    assert error.value.path == f"$.context_management.{path}"


def test_context_management_of_other_api_is_unchanged() -> None:
    asked = Request("m", (), extra={"context_management": Raw(b"[]")}, dialect="openai_responses")
    assert apply_edits(asked, GENERIC) == EditedRequest(asked)


def test_context_edits_take_linear_time() -> None:
    edit = {**ONE_KEPT, "clear_at_least": amount("input_tokens", 10**9)}

    def made(uses: int) -> Callable[[], object]:
        return partial(apply_to, history(uses, said=""), edit, {"type": TURNS})

    assert cpu_cost.growth(made, 500, 2_000, most=2) < 2


PROMPT_MODE = {"api": "anthropic_messages", "tool_mode": "prompt", "call_format": "hermes"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("settings", [*BEHIND, PROMPT_MODE], ids=lambda s: "-".join(s.values()))
async def test_non_anthropic_upstream_gets_edited_conversation(settings: dict[str, Any], stream: bool) -> None:
    passes = settings == {"api": "anthropic_messages"}
    asked = {"edits": [ONE_KEPT, {"type": "compact_20260112"}]}
    async with server(answers(settings)) as far, serving(gateway(far, **settings)) as (_, url):
        async with http_client(url) as http:
            body = {"model": "m", "max_tokens": 99, "stream": stream, "messages": history(3)}
            answer = await http.post(MESSAGES, json={**body, "context_management": asked})
        assert answer.status_code == 200, answer.text
        ((_, _, sent),) = far.asked
    assert sent.decode().count(CLEARED) == (0 if passes else 2)
    assert json.loads(sent).get("context_management") == (asked if passes else None)
    assert (
        "content_dropped: context_management.compact_20260112" in answer.headers.get("x-dragoman-warnings", "")
    ) == (not passes)
    said = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
    delta = next(event for event in said if event["type"] == "message_delta") if stream else answer.json()
    applied = (delta.get("context_management") or {"applied_edits": []})["applied_edits"]
    assert [(each["type"], each["cleared_tool_uses"]) for each in applied] == ([] if passes else [(USES, 2)])


async def test_claude_cli_gets_edited_conversation(tmp_path: Any) -> None:
    async with chain(tmp_path) as c:
        answer = await c.ask(MESSAGES, model="sonnet", messages=history(3), context_management={"edits": [ONE_KEPT]})
        assert (answer.status_code, "content_dropped" in warned(answer)) == (200, False)
        assert json.dumps(c.heard()[-1]).count(CLEARED) == 2


def test_embedded_backend_has_no_native_context_edits() -> None:
    assert EmbeddedModel.edits_context is Backend.edits_context


@pytest.mark.parametrize("edits", [[], KEPT_ALL["edits"], [ONE_KEPT]])
async def test_anthropic_sdk_reads_applied_edits(edits: list[dict[str, Any]]) -> None:
    seen: list[Request] = []

    async def script(backend: Scripted, request: Request) -> Any:
        seen.append(request)
        async for event in plain(backend, request):
            yield event

    cleared = [USES] if edits == [ONE_KEPT] else []
    said: dict[str, Any] = {"model": "m", "max_tokens": 99, "messages": history(3)}
    said |= {"context_management": {"edits": edits}, "betas": ["context-management-2025-06-27"]}
    async with serving(Gateway([Scripted(script)])) as (_, url):  # noqa: SIM117
        async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as sdk:
            whole = await sdk.beta.messages.create(**said)
            raw = await sdk.beta.messages.with_raw_response.create(**said)
            async with sdk.beta.messages.stream(**said) as stream:
                streamed = await stream.get_final_message()
            counted = await sdk.beta.messages.count_tokens(**{k: v for k, v in said.items() if k != "max_tokens"})
    assert "context_management" not in raw.headers.get("x-dragoman-warnings", "")
    for message in (whole, streamed):
        assert message.context_management is not None
        assert [each.type for each in message.context_management.applied_edits] == cleared
    assert counted.context_management is not None
    assert (counted.context_management.original_input_tokens > counted.input_tokens) == bool(cleared)
    assert ["c" in results(request) for request in seen] == [bool(cleared)] * 3
