"""The parts of a request: names, tokens, and sums."""

import json
from typing import Any

import msgspec

from dragoman.console.context_use.captured import CapturedRequest
from dragoman.console.context_use.counts import explain_count, group_parts, part_ends, part_view, total_count
from dragoman.console.context_use.parts import excerpt, request_parts, telling_argument
from dragoman.console.context_use.trims import budget_of, preview_trims
from dragoman.console.context_use.views import ReportedUsage
from dragoman.core.messages import (
    Image,
    MediaSource,
    Message,
    Reasoning,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from dragoman.core.token_estimate import GENERIC
from dragoman.prompting.prompt_budget import Budget

SCHEMA = json.dumps({"type": "object", "properties": {"path": {"type": "string", "description": "Of the file. " * 30}}})
REQUEST = Request(
    "m",
    (
        Message("system", (Text("You are an agent. " * 40), Text("<env>\nlinux\n</env>"))),
        Message("user", (Text("Read the plan"), Image(MediaSource("image/png", "aGk=")))),
        Message("assistant", (Reasoning("It is a file."), ToolCall("c1", "Read", '{"path": "docs/plan.md"}'))),
        Message("user", (ToolResult("c1", (Text("a plan " * 200), Image(MediaSource("image/png", "aGk=")))),)),
        Message("assistant", (Text("It is a plan."),)),
        Message("user", (Text("Thanks"),)),
    ),
    tools=(Tool("Read", "Reads a file. It is long. " * 20, SCHEMA), Tool("Stop", "Stops.")),
    response_schema='{"type": "object"}',
)


NONE = ReportedUsage()


def captured(usage: ReportedUsage = NONE, **settings: Any) -> CapturedRequest:
    return CapturedRequest(REQUEST, REQUEST, "off", "far", settings, usage, {}, 1.0)


def test_every_part_has_its_kind_and_a_telling_name() -> None:
    parts = request_parts(REQUEST, GENERIC)
    assert [(part.kind, part.name, part.link) for part in parts] == [
        ("tool", "tool Read", "tool:Read"),
        ("tool", "tool Stop", "tool:Stop"),
        ("frame", "roles and markers", ""),
        ("system", "system prompt", "message:0"),
        ("system", "system prompt, <env>", "message:0"),
        ("user", "user message 1", "message:1"),
        ("image", "image in user message 1", "message:1"),
        ("reasoning", "reasoning of answer 1", "message:2"),
        ("call", "call of Read docs/plan.md", "message:2"),
        ("result", "result of Read docs/plan.md", "message:3"),
        ("image", "image in result of Read docs/plan.md", "message:3"),
        ("assistant", "answer 2", "message:4"),
        ("user", "user message 2", "message:5"),
        ("schema", "schema of the response", ""),
    ]


def test_estimates_add_up_to_that_of_the_request() -> None:
    total = sum(part.tokens for part in request_parts(REQUEST, GENERIC))
    whole = GENERIC.estimate_request(REQUEST)
    assert abs(total - whole) < len(request_parts(REQUEST, GENERIC))


def test_scaled_parts_add_up_to_the_reported_tokens() -> None:
    parts = request_parts(REQUEST, GENERIC)
    found = total_count(parts, captured(ReportedUsage(input_tokens=5001)))
    ends = part_ends(parts, found)
    scaled = [part_view(*span, 400) for span in zip(parts, [0, *ends], ends, strict=False)]
    assert (found.counting, sum(part.tokens for part in scaled)) == ("reported", 5001)
    assert sum(part.cached_tokens or 0 for part in scaled) == 400
    assert scaled[0].cached_tokens == min(400, scaled[0].tokens)
    assert sum(group.tokens for group in group_parts(parts, ends)) == 5001
    assert "far reported 5,001 input tokens" in explain_count(found, "qwen3", "far")


def test_count_of_the_backend_comes_before_usage_and_estimated_usage_counts_for_nothing() -> None:
    parts = request_parts(REQUEST, GENERIC)
    assert total_count(parts, captured(ReportedUsage(input_tokens=10)), 20)[:2] == (20, "exact")
    estimated = captured(ReportedUsage(input_tokens=10, is_estimated=True))
    assert total_count(parts, estimated).counting == "estimated"
    assert part_view(parts[0], 0, 10, None).cached_tokens is None


def test_far_too_small_count_is_explained() -> None:
    parts = request_parts(REQUEST, GENERIC)
    found = total_count(parts, captured(ReportedUsage(input_tokens=200)))
    assert "may have truncated the prompt" in explain_count(found, "", "far")


def test_equal_content_has_equal_marks() -> None:
    again = msgspec.json.decode(msgspec.json.encode(REQUEST.tools[0]), type=Tool)
    changed = msgspec.structs.replace(REQUEST, tools=(again, Tool("Stop", "Stops now.")))
    first, second = request_parts(REQUEST, GENERIC), request_parts(changed, GENERIC)
    differ = [a.name for a, b in zip(first, second, strict=True) if a.mark != b.mark]
    assert differ == ["tool Stop"]


def test_name_of_a_call_has_its_most_telling_argument() -> None:
    assert telling_argument('{"limit": 3, "file_path": "src/a.py"}') == "src/a.py"
    assert telling_argument('{"command": ["bash", "-lc", "ls\\n-l"]}') == "bash -lc ls -l"
    assert telling_argument('{"city": "Oslo"}') == "Oslo"
    assert telling_argument('{"n": 1}') == telling_argument("{broken") == telling_argument('{"a": "\\ud800"}') == ""
    assert len(telling_argument(json.dumps({"command": "x" * 10_000}))) == 80
    assert len(excerpt("word\n" * 1000)) == 100


def test_preview_has_each_tier_with_what_it_removes() -> None:
    tiers = preview_trims(captured(prompt_trim="tools"), GENERIC, 2.0, Budget(0))
    assert [(tier.level, tier.is_used, tier.is_applied) for tier in tiers] == [
        ("off", False, True),
        ("tools", True, False),
        ("aggressive", False, False),
        ("max", False, False),
    ]
    assert [tier.tokens_before for tier in tiers] == [2 * sum(p.tokens for p in request_parts(REQUEST, GENERIC))] * 4
    after = [tier.tokens_after for tier in tiers]
    assert after[0] == tiers[0].tokens_before
    assert max(after[1:]) < after[0]
    assert tiers[0].parts == []
    assert tiers[1].parts[0].name == "tool Read"
    assert tiers[1].parts[0].tokens_after < tiers[1].parts[0].tokens_before
    assert {part.name for part in tiers[3].parts} >= {"tool Read", "system prompt"}
    assert tiers[1].is_within_budget is None


def test_preview_with_a_budget_omits_tools() -> None:
    settings: dict[str, Any] = {"prompt_trim": "off", "prompt_tokens": 150, "tools": ["Stop"]}
    budget = budget_of(settings, 0.0)
    tiers = preview_trims(captured(**settings), GENERIC, 1.0, budget)
    assert [tier.is_within_budget for tier in tiers[:4]] == [False] * 4
    last = tiers[-1]
    assert last.level == "max, fewer tools"
    assert next(part for part in last.parts if part.name == "tool Read").tokens_after == 0
    assert budget_of({"first_response_target_s": 10, "tools": []}, 100.0).tokens == 600
    assert budget_of({"first_response_target_s": 10, "tools": []}, 0.0).tokens == 0


def test_hostile_requests_are_counted() -> None:
    deep = "[" * 100_000
    parts = (ToolCall("c", "Read", '{"a": ' + deep), ToolCall("c", "", ""), ToolResult("other", ()))
    tools = (Tool("Read", "", '{"a": ' + deep), Tool("Read", "Twice."), Tool("", ""))
    request = Request("m", (Message("assistant", parts), Message("user", ())), tools=tools)
    counted = request_parts(request, GENERIC)
    assert [part.name for part in counted[-3:]] == ["call of Read", "call of", "result of a call"]
    hostile = captured()._replace(request=request, sent=request)
    off, *_ = preview_trims(hostile, GENERIC, 1.0, Budget(0))
    assert abs(off.tokens_before - sum(part.tokens for part in counted)) <= 1
    empty = captured()._replace(request=Request("m", ()), sent=Request("m", ()))
    assert preview_trims(empty, GENERIC, 1.0, Budget(0))[0].tokens_before == 0
    assert total_count([], empty).scale == 1.0
