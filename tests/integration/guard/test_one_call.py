"""The number of calls of a response if a call is required."""

import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dragoman import dialects
from dragoman.api.engine_session import EngineSession
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.call_limit import MAX_CALLS, limit_to_one_call
from dragoman.core.events import AnyEvent, Finish, Start, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from support.check_each import check_each
from support.events import all_events
from support.scripted_backend import Scripted

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "get_weather", "parameters": SCHEMA}


def body(api: str, mode: str, several: bool | None) -> bytes:
    """A request by this API whose tool choice has this mode; `several` as the client states it."""
    asked: dict[str, Any] = {"model": "m", "stream": True}
    stated = {} if several is None else {"parallel_tool_calls": several}
    match api:
        case "openai_chat":
            tools: Any = {"type": "function", "function": FUNCTION}
            named: Any = {"type": "function", "function": {"name": "get_weather"}}
            asked |= {"messages": [{"role": "user", "content": "?"}], "tools": [tools], **stated}
        case "openai_responses":
            named = {"type": "function", "name": "get_weather"}
            asked |= {"input": "?", "tools": [{"type": "function", **FUNCTION}], **stated}
        case _:
            named = {"type": "tool", "name": "get_weather"}
            choice = named if mode == "named" else {"type": {"required": "any"}.get(mode, mode)}
            stated = {} if several is None else {"disable_parallel_tool_use": not several}
            tools = [{"name": "get_weather", "input_schema": SCHEMA}]
            asked |= {"max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "tools": tools}
            return json.dumps({**asked, "tool_choice": {**choice, **stated}}).encode()
    return json.dumps({**asked, "tool_choice": named if mode == "named" else mode}).encode()


async def flood(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("1", "m", 7)
    for index in range(40):
        yield ToolCallStart(index, f"call_{index}", "get_weather")
        yield ToolCallDelta(index, json.dumps({"city": str(index)}))
        yield ToolCallEnd(index)
    yield Finish("tool_calls")


@pytest.mark.parametrize("api", dialects.names())
@pytest.mark.parametrize("mode", ["required", "named", "auto"])
@pytest.mark.parametrize("several", [True, False, None])
@pytest.mark.parametrize("enabled", [True, False])
async def test_required_choice_is_limited_to_one_call(api: str, mode: str, several: bool | None, enabled: bool) -> None:
    request = dialects.get(api).read_request(body(api, mode, several))
    backend = Scripted(flood)
    gateway = Gateway([backend], policy=GuardPolicy(enabled=enabled))
    events = await all_events(gateway.generate(request, ExchangeContext("1", 7, lambda: "new")))
    most = MAX_CALLS if enabled else 40
    one = several is False or (mode != "auto" and several is None)
    assert sum(isinstance(event, ToolCallEnd) for event in events) == (1 if one else most)
    if one and enabled and mode != "auto":
        assert backend.sent < 10, "the answer is ended, not waited for"


def test_parallel_calls_setting_is_forwarded_to_same_api(subtests: pytest.Subtests) -> None:
    def check(case: tuple[str, str, bool | None]) -> None:
        api, mode, several = case
        asked = body(api, mode, several)
        sent = json.loads(dialects.get(api).write_request(dialects.get(api).read_request(asked), "m").body)

        def stated(body: Any) -> list[Any]:
            choice = body["tool_choice"] if isinstance(body.get("tool_choice"), dict) else {}
            return [body.get("parallel_tool_calls"), choice.get("disable_parallel_tool_use")]

        assert stated(sent) == stated(json.loads(asked))

    check_each(subtests, itertools.product(dialects.names(), ("required", "named", "auto"), (True, False, None)), check)


def test_required_choice_disables_parallel_calls_by_default() -> None:
    asked = v.Request("m", (), tool_choice=v.ToolChoice("required"))
    assert not limit_to_one_call(asked).tool_choice.parallel_tool_calls
    assert limit_to_one_call(v.Request("m", ())).tool_choice.parallel_tool_calls


def test_engine_session_ends_at_call_limit() -> None:
    call = '<tool_call>{{"name": "get_weather", "arguments": {{"city": "{}"}}}}</tool_call>'
    for mode, made in (("required", 1), ("auto", MAX_CALLS)):
        answer = EngineSession(body("openai_chat", mode, None), "hermes", created=7)
        for number in range(40):
            answer.feed(call.format(number))
        answer.close()
        assert (answer.finished, len(answer.reply.parts)) == (True, made)
    assert [warning.code for warning in answer.warnings] == ["call_limit_reached"]
