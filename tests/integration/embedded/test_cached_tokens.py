"""Cached prompt tokens of turns that end with a required call, in the usage."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.messages import Reply
from dragoman.steps.apply import apply_steps
from support.events import all_events
from support.scripted_llama import PROFILE, backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

RULES = " ".join(f"Rule {number}: report number {number} lists {number * 7} sales." for number in range(40))
CITY = '{"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome"]}}, "required": ["city"]}'
TOOLS = tuple(v.Tool(name, f"The tool {name}.", CITY) for name in ("fetch", "analyze", "submit"))
STEPS = v.Steps(("fetch", "analyze"), ordered=True, terminal=("submit",))
ASK = (v.Message("system", (v.Text(RULES),)), v.Message("user", (v.Text("Report on sales in Rome."),)))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small() -> AsyncIterator[EmbeddedModel]:
    embedded = backend(context_window=4096)
    await embedded.start()
    yield embedded
    await embedded.close()


async def respond(model: EmbeddedModel, request: v.Request, id: str) -> Reply:
    return collect(await all_events(model.generate(request, ExchangeContext("id", 0, iter([id]).__next__))))


async def test_usage_of_each_step_counts_the_cached_prompt(small: EmbeddedModel) -> None:
    messages, before = ASK, 0
    for name in ("fetch", "analyze", "submit"):
        request = v.Request(PROFILE.name, messages, TOOLS, steps=STEPS, max_tokens=100)
        response = await respond(small, apply_steps(request).request, name)
        (call,) = (part for part in response.parts if isinstance(part, v.ToolCall))
        assert (call.name, json.loads(call.arguments)) == (name, {"city": "Rome"})
        usage = response.usage
        assert before - 10 <= usage.cached_input_tokens <= usage.input_tokens
        result = v.Message("tool", (v.ToolResult(call.id, (v.Text("done"),)),))
        messages, before = (*messages, v.Message("assistant", (call,)), result), usage.input_tokens
    assert before > 700
