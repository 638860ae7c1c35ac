"""At most two generations for one response, whatever two errors follow each other and whichever checks are on."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.gguf import Metadata
from dragoman.catalog import models
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Failure, Notice, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.hooks.hook import Hook
from dragoman.gateway.hooks.hook_runner import HookRunner
from dragoman.gateway.hooks.hooked_gateway import HookedGateway
from dragoman.guard.policy import GuardPolicy
from support.check_each import check_each_async
from support.events import all_events
from support.scripted_llama import ScriptedLlama

pytestmark = pytest.mark.asyncio

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'


def tool(name: str, parameter: str) -> Tool:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return Tool(name, "", json.dumps(schema))


TOOLS = (tool("get_user", "user_id"), tool("search_users", "name"), tool("delete_user", "user_id"))


def call(name: str, /, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


OUTPUTS = {
    "repeat": call("search_users", name="Ann Lee"),
    "text, then repeat": f"Let me look.\n{call('search_users', name='Ann Lee')}",
    "invalid": call("get_user", user_id={"a": 1}),
    "unknown tool": call("drop_table", name="users"),
    "unoffered": '{"name": "greet", "arguments": {}}',
    "invented": call("get_user", user_id="12345"),
    "invented, then repeat": f"{call('get_user', user_id='12345')}\n{call('search_users', name='Ann Lee')}",
    "vetoed": call("delete_user", user_id="U-7001"),
    "broken": '<tool_call>\n{"name": "get_user", "arguments": {"user_id": Ann}}\n</tool_call>',
    "text": "It is Ann.",
    "JSON of another schema": '{"n": "many"}',
    "nothing": "",
    "valid": call("get_user", user_id="U-7001"),
}
POLICIES = {
    "default": GuardPolicy(),
    "all checks": GuardPolicy(invented_values="reask", max_identical_calls=1, buffering="all"),
    "nothing is buffered": GuardPolicy(invented_values="reask", buffering="off"),
}
CHOICES = (ToolChoice(), ToolChoice("required"), ToolChoice("named", "get_user"), ToolChoice("none"))
REQUEST = Request(
    "m",
    (
        Message("user", (Text("Show the profile of Ann Lee."),)),
        Message("assistant", (ToolCall("call_1", "search_users", '{"name": "Ann Lee"}'),)),
        Message("tool", (ToolResult("call_1", (Text('{"user_id": "U-7001"}'),)),)),
    ),
    TOOLS,
    max_tokens=200,
)


def veto(tool_call: ToolCall, _: Request) -> str | None:
    return "it deletes data" if tool_call.name == "delete_user" else None


def embedded(*texts: str) -> tuple[EmbeddedModel, ScriptedLlama]:
    """An embedded model that writes these texts in turn, and repeats the last one."""
    profile = replace(models.default(), name="m", after_result="no_repeats")
    metadata = Metadata("m", TEMPLATE, 4096, "", "", ("<|im_start|>", "<|im_end|>"), ())
    backend = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(), lambda _: None, metadata)
    backend.engine = engine = ScriptedLlama(*texts, *[texts[-1]] * 9)
    return backend, engine


async def respond(
    policy: GuardPolicy, request: Request, *texts: str, hooked: bool = False
) -> tuple[list[AnyEvent], int]:
    """Returns the events of the response, and the number of generations."""
    backend, engine = embedded(*texts)
    hooks = HookRunner([Hook("audit", {"on_tool_call": veto})], 5, fail_closed=True)
    gateway = HookedGateway(hooks, [backend], policy=policy) if hooked else Gateway([backend], policy=policy)
    numbers = itertools.count()
    context = ExchangeContext("t", 0, lambda: f"{next(numbers):024}")
    return await all_events(gateway.generate(request, context)), len(engine.asked)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("hooked", [False, True])
async def test_two_errors_in_turn_need_at_most_two_generations(
    subtests: pytest.Subtests, policy: str, hooked: bool
) -> None:
    """Repeated, invalid, unoffered, invented and vetoed calls, missing calls, and text that violates a schema."""
    options = itertools.cycle(itertools.product(CHOICES, ("", SCHEMA), (False, True)))
    cases = list(zip(itertools.product(OUTPUTS, OUTPUTS), options, strict=False))

    async def check(case: tuple[tuple[str, str], tuple[ToolChoice, str, bool]]) -> None:
        (first, second), (choice, schema, stream) = case
        request = replace(REQUEST, tool_choice=choice, response_schema=schema, stream=stream)
        events, generations = await respond(POLICIES[policy], request, OUTPUTS[first], OUTPUTS[second], hooked=hooked)
        assert 1 <= generations <= 2
        ends = sum(isinstance(each, ToolCallEnd | ToolCallIncomplete) for each in events)
        is_cut = any(isinstance(each, Failure) for each in events)
        assert is_cut or ends == sum(isinstance(each, ToolCallStart) for each in events)
        codes = [each.code for each in events if isinstance(each, Notice)]
        assert generations == 1 or codes.count("reasked") == 1
        assert not hooked or not any(isinstance(each, ToolCallStart) and each.name == "delete_user" for each in events)

    await check_each_async(subtests, cases, check)
