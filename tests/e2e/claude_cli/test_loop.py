"""A chain of a client, Dragoman, the real Claude CLI, Dragoman again, and the embedded model.

    client ─Chat→ gateway ─JSON lines→ claude ─Messages→ gateway ─engine→ the model

The reverse, Claude Code as a client of a gateway, is tested in tests/e2e/agents/test_claude_code.py and
tests/e2e/agents/test_agents_over_http.py.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from bench import offline

from dragoman.backends.claude_cli.backend import ClaudeCliBackend
from dragoman.backends.claude_cli.config import ClaudeCliConfig
from dragoman.gateway import gateway as near
from support.agents import NOWHERE
from support.gateway import DEADLINE_S, MODEL, Gateway
from support.scripted_backend import serving

pytestmark = pytest.mark.model

QUESTION: Final = "What is the weather in Bern?"
CITIES: Final = ["Bern", "Rome"]
TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}


@asynccontextmanager
async def chain(far: Gateway, home: Path, **body: object) -> AsyncIterator["openai.AsyncOpenAI"]:
    """A client of a gateway with the Claude CLI, whose API is a gateway with the embedded model and gets `body`."""
    more = {"CLAUDE_CODE_EXTRA_BODY": json.dumps({"temperature": 0, **body})}
    shut = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": "127.0.0.1"}
    environ = offline.environment(home, ANTHROPIC_BASE_URL=far.url, ANTHROPIC_API_KEY="k", **shut, **more)
    command = str(offline.claude_code())
    config = ClaudeCliConfig(True, command, "native", (MODEL,), warm_processes=0, env_passthrough=tuple(more))
    async with serving(near.Gateway([ClaudeCliBackend(config, environ)])) as (_, url):
        settings: Any = {"api_key": "k", "max_retries": 0, "timeout": DEADLINE_S}
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", **settings) as sdk:
            yield sdk


async def test_tool_round_trip_through_two_gateways_and_claude(gateway: Gateway, tmp_path: Path) -> None:
    """The small model calls a tool only if forced; CLAUDE_CODE_EXTRA_BODY adds that `tool_choice`."""
    must = {"type": "any"}
    function = {"name": "get.weather", "description": "The weather of a city.", "parameters": TOOL}
    said: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Any = {"model": MODEL, "tools": [{"type": "function", "function": function}], "max_tokens": 60}
    async with (
        chain(gateway, tmp_path, tool_choice=must) as sdk,
        sdk.chat.completions.stream(messages=said, **asked) as events,
    ):
        message: Any = (await events.get_final_completion()).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "get.weather"
    assert json.loads(call.function.arguments)["city"] in CITIES
    results = [{"role": "tool", "tool_call_id": c.id, "content": "sunny, 22 degrees"} for c in message.tool_calls]
    async with chain(gateway, tmp_path) as sdk:
        reply = await sdk.chat.completions.create(messages=[*said, message, *results], **asked)
    assert "sunny" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason in ("stop", "length")
    assert reply.usage.completion_tokens > 0
