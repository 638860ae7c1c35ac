"""The vendors' Python SDKs over HTTP: every request function and scenario, up to the response to a tool result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import anthropic
import openai
import pytest
import pytest_asyncio

from support.gateway import DEADLINE_S
from support.scenarios import CALLING, DIED, SCENARIOS, SCHEMAS, WHOLE, Said, expected, is_kept, play, run, told
from support.scripted_backend import IMPATIENT, served
from support.sdk_calls import (
    BROKEN,
    CHAT,
    MESSAGES,
    PARSING,
    RESPONSES,
    USER,
    Api,
    Ask,
    Sdk,
    functions,
    of_message,
    of_response,
    response_further,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

Sdks: TypeAlias = dict[str, Sdk]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sdks(keep: Callable[..., None]) -> AsyncIterator[Sdks]:
    settings: Any = {"api_key": "k", "max_retries": 0, "timeout": DEADLINE_S}
    async with (
        served(play, names=list(SCENARIOS), **IMPATIENT) as s,
        openai.AsyncOpenAI(base_url=f"{s.url}/v1", **settings) as openai_waiting,
        anthropic.AsyncAnthropic(base_url=s.url, **settings) as anthropic_waiting,
    ):
        with (
            openai.OpenAI(base_url=f"{s.url}/v1", **settings) as openai_blocking,
            anthropic.Anthropic(base_url=s.url, **settings) as anthropic_blocking,
        ):
            yield {
                "openai": Sdk(openai_blocking, openai_waiting),
                "anthropic": Sdk(anthropic_blocking, anthropic_waiting),
            }
        packages = f"openai {openai.__version__} and anthropic {anthropic.__version__} for Python"
        keep("python_sdks", packages, [sent for sent in s.sent if is_kept(sent)], ours=("",))


MODES = [pytest.param(api, ask, id=ask.__name__) for api in (CHAT, RESPONSES, MESSAGES) for ask in api.modes]


PACKAGES = {ask.__name__: f"{api.package} for Python" for api in (CHAT, RESPONSES, MESSAGES) for ask in api.modes}


async def answer(api: Api, ask: Ask, sdks: Sdks, scenario: str, said: list[Any]) -> Any:
    tools = functions() if ask in PARSING else api.tools
    try:
        return await sdks[api.package].run(ask, model=scenario, **api.asks(said, tools))
    except openai.LengthFinishReasonError as cut:
        return cut.completion


@pytest.mark.ran(PACKAGES, "a script")
@pytest.mark.parametrize("scenario", WHOLE)
@pytest.mark.parametrize(("api", "ask"), MODES)
async def test_python_sdk_gets_all_content_and_sends_tool_results(
    api: Api, ask: Ask, scenario: str, sdks: Sdks
) -> None:
    reply = await answer(api, ask, sdks, scenario, [USER])
    said, end = api.said(reply)
    assert said == expected(scenario)
    text, calls, refused, _ = api.ends
    assert end == (calls if scenario in CALLING else refused if scenario == "refusal" else text)
    if scenario in CALLING:
        results = {id: run(name, arguments) for id, name, arguments in said.calls}
        last = await answer(api, ask, sdks, scenario, [USER, *api.further(reply, results)])
        assert api.said(last) == (Said(told(scenario)), text)


@pytest.mark.parametrize(("api", "ask"), MODES)
async def test_truncated_call_has_length_finish_reason(api: Api, ask: Ask, sdks: Sdks) -> None:
    said, end = api.said(await answer(api, ask, sdks, "cut", [USER]))
    assert said == Said(BROKEN)
    assert end == api.ends[3]


@pytest.mark.parametrize(("api", "ask"), MODES)
async def test_stream_that_breaks_off_raises_error(api: Api, ask: Ask, sdks: Sdks) -> None:
    with pytest.raises(api.error, match=DIED):
        api.said(await answer(api, ask, sdks, "broken", [USER]))


@pytest.mark.parametrize("scenario", CALLING)
@pytest.mark.parametrize("ask", RESPONSES.modes, ids=lambda ask: ask.__name__)
async def test_response_is_continued_by_id(ask: Ask, scenario: str, sdks: Sdks) -> None:
    reply = await answer(RESPONSES, ask, sdks, scenario, [USER])
    results = {id: run(name, arguments) for id, name, arguments in of_response(reply)[0].calls}
    outputs = [item for item in response_further(reply, results) if item not in reply.output]
    last = await sdks["openai"].run(ask, model=scenario, input=outputs, previous_response_id=reply.id)
    assert of_response(last) == (Said(told(scenario)), "completed")


# Anthropic's tool runner


@dataclass
class Tools:
    """Tools that record their runs."""

    runs: list[tuple[str, dict[str, str]]]

    def run(self, name: str, **arguments: str) -> str:
        self.runs.append((name, arguments))
        return run(name, arguments)

    def blocking(self) -> list[Any]:
        return [anthropic.beta_tool(self.made(name), name=name, input_schema=s) for name, s in SCHEMAS.items()]

    def waiting(self) -> list[Any]:
        def made(name: str) -> Callable[..., Any]:
            async def tool(**arguments: str) -> str:
                return self.run(name, **arguments)

            tool.__doc__ = name
            return tool

        return [anthropic.beta_async_tool(made(name), name=name, input_schema=s) for name, s in SCHEMAS.items()]

    def made(self, name: str) -> Callable[..., str]:
        def tool(**arguments: str) -> str:
            return self.run(name, **arguments)

        tool.__doc__ = name
        return tool


def runner(sdk: anthropic.Anthropic, tools: Tools, **asked: Any) -> list[Any]:
    return list(sdk.beta.messages.tool_runner(tools=tools.blocking(), **asked))


def runner_stream(sdk: anthropic.Anthropic, tools: Tools, **asked: Any) -> list[Any]:
    streams = sdk.beta.messages.tool_runner(tools=tools.blocking(), stream=True, **asked)
    return [stream.get_final_message() for stream in streams]


def runner_stream_eager(sdk: anthropic.Anthropic, tools: Tools, **asked: Any) -> list[Any]:
    streams = sdk.beta.messages.tool_runner(tools=tools.blocking(), stream=True, run_tools_eagerly=True, **asked)
    return [stream.get_final_message() for stream in streams]


async def runner_async(sdk: anthropic.AsyncAnthropic, tools: Tools, **asked: Any) -> list[Any]:
    return [message async for message in sdk.beta.messages.tool_runner(tools=tools.waiting(), **asked)]


async def runner_stream_async(sdk: anthropic.AsyncAnthropic, tools: Tools, **asked: Any) -> list[Any]:
    streams = sdk.beta.messages.tool_runner(tools=tools.waiting(), stream=True, **asked)
    return [await stream.get_final_message() async for stream in streams]


RUNNERS = pytest.mark.parametrize(
    "ask", [runner, runner_stream, runner_stream_eager, runner_async, runner_stream_async], ids=lambda ask: ask.__name__
)


async def turns(ask: Ask, sdks: Sdks, scenario: str) -> tuple[list[tuple[Said, str]], Tools]:
    tools = Tools([])
    messages = await sdks["anthropic"].run(ask, tools=tools, model=scenario, max_tokens=99, messages=[USER])
    return [of_message(message) for message in messages], tools


@RUNNERS
@pytest.mark.parametrize("scenario", WHOLE)
async def test_tool_runner_runs_requested_calls(ask: Ask, scenario: str, sdks: Sdks) -> None:
    said, tools = await turns(ask, sdks, scenario)
    calls = expected(scenario).calls
    assert tools.runs == [(name, arguments) for _, name, arguments in calls]
    end = "refusal" if scenario == "refusal" else "end_turn"
    last = (Said(told(scenario)), end) if calls else (expected(scenario), end)
    assert said == ([(expected(scenario), "tool_use"), last] if calls else [last])


@RUNNERS
async def test_tool_runner_does_not_run_truncated_call(ask: Ask, sdks: Sdks) -> None:
    said, tools = await turns(ask, sdks, "cut")
    assert tools.runs == []
    assert said == [(Said(BROKEN), "max_tokens")]


@RUNNERS
async def test_tool_runner_raises_error_if_stream_breaks_off(ask: Ask, sdks: Sdks) -> None:
    with pytest.raises(anthropic.APIError, match=DIED):
        await turns(ask, sdks, "broken")
