"""One client request causes exactly one request of the Claude CLI: additional requests would cost money."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from bench import offline

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.core import messages as v
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
from dragoman.core.messages import FinishReason
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from support.agents import NOWHERE
from support.gateway import CHAT
from support.http_client import http_client
from support.scripted_backend import Scripted, served, serving


def _call(name: str, arguments: str) -> Sequence[AnyEvent]:
    return ToolCallStart(0, "toolu_0", name), ToolCallDelta(0, arguments), ToolCallEnd(0)


@dataclass
class Says:
    """A scripted model with the same response each time."""

    events: Sequence[AnyEvent]
    reason: FinishReason
    asked: list[v.Request] = field(default_factory=list)

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        self.asked.append(request)
        yield Start("", "", 0, 100)
        for event in self.events:
            yield event
        yield UsageUpdate(v.Usage(100, 5))
        yield Finish(self.reason)


WEATHER: Final = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        pytest.param([TextDelta("Hello")], "stop", id="words"),
        pytest.param([TextDelta("Hel")], "length", id="words that were cut"),
        pytest.param([], "stop", id="nothing"),
        pytest.param([TextDelta("I will not.")], "content_filter", id="a refusal"),
        pytest.param([], "content_filter", id="a refusal without a word"),
        pytest.param([ReasoningDelta("Hm."), ReasoningDelta("", "c2ln")], "stop", id="thoughts alone"),
        pytest.param(_call("mcp__t__weather", '{"city": "Rome"}'), "tool_calls", id="a call"),
        pytest.param(_call("mcp__t__weather", '{"city": 1}'), "tool_calls", id="a call against its schema"),
        pytest.param(_call("mcp__t__tides", "{}"), "tool_calls", id="a call of no tool"),
        pytest.param(_call("Bash", '{"command": "true"}'), "tool_calls", id="a call of a tool of the program's"),
    ],
)
async def test_client_request_causes_one_claude_request(
    events: Sequence[AnyEvent], reason: FinishReason, tmp_path: Path
) -> None:
    script = Says(events, reason)
    async with served(script, alias="m") as far:
        environ = offline.environment(
            tmp_path, ANTHROPIC_BASE_URL=far.url, ANTHROPIC_API_KEY="k", HTTPS_PROXY=NOWHERE, NO_PROXY="127.0.0.1"
        )
        config = ClaudeCliConfig(True, str(offline.claude_code()), "native", ("m",), max_retries=0)
        asked: dict[str, Any] = {"model": "m", "tools": [{"type": "function", "function": WEATHER}]}
        asked["messages"] = [{"role": "user", "content": "hi"}]
        async with (
            serving(Gateway([ClaudeCliBackend(config, environ)], policy=GuardPolicy(reask=False))) as (_, url),
            http_client(url) as client,
        ):
            answer = await client.post(CHAT, json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["finish_reason"] == reason
    assert len(script.asked) == 1
