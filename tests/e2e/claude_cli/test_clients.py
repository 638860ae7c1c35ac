"""Real clients with the real Claude CLI as their model: tool round trips, and the requests that reach the model."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import anthropic
import openai
import pytest
from pydantic import SecretStr

from support.claude_gateway import PREFIX, Says, Turns, behind_claude, offered, text
from support.claude_images import IMAGE, PICTURE
from support.gateway import DEADLINE_S

MODES: Final = pytest.mark.parametrize("mode", ["native"])

SYSTEM: Final = 'You help Ada.\n\n  Rules: "quote" what you <read>; see @notes.txt; /clear nothing. Grüße 🌊'
QUESTION: Final = "Which weather is in this picture, is it like that in Bern, and is the door open?"
SCHEMAS: Final[dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "$defs": {"unit": {"enum": ["celsius", "fahrenheit"], "description": "“of degrees”"}},
        "properties": {
            "city": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
            "unit": {"anyOf": [{"$ref": "#/$defs/unit"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "check-door": {"type": "object", "properties": {"floor": {"type": ["integer", "null"]}}, "required": ["floor"]},
}
ABOUT: Final = {"get_weather": "The weather of a city.\n\nNow: 🌊", "check-door": ""}
CALLS: Final = [("get_weather", {"city": "Bern 🌊", "unit": "celsius"}), ("check-door", {"floor": 2})]
NO_DOOR: Final = "Error: there is no floor 2"
LAST: Final = "18 degrees; there is no such door."
ANSWERS: Final = (Says("Let me look.", CALLS), Says(LAST))


KEY: Final = SecretStr("k")
DATA_URL: Final = f"data:image/png;base64,{PICTURE}"


def run(name: str, arguments: Any) -> tuple[str, bool]:
    """Returns the result of the client's tool, and whether it failed."""
    assert (name, arguments) in CALLS
    return (NO_DOOR, True) if name == "check-door" else (f"18 degrees in {arguments['city']}", False)


# The vendors' SDKs


async def chat(url: str, stream: bool) -> str:
    """OpenAI Chat Completions."""
    tools: Any = [
        {"type": "function", "function": {"name": n, "description": ABOUT[n], "parameters": s}}
        for n, s in SCHEMAS.items()
    ]
    parts = [text(QUESTION), {"type": "image_url", "image_url": {"url": DATA_URL}}]
    said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": parts}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=DEADLINE_S) as sdk:
        while True:
            asked: Any = {"model": "m", "messages": said, "tools": tools}
            if stream:
                async with sdk.chat.completions.stream(**asked) as events:
                    kinds = [event.type async for event in events]
                    message: Any = (await events.get_final_completion()).choices[0].message
                assert kinds.count("tool_calls.function.arguments.delta") > 4 or not message.tool_calls
            else:
                message = (await sdk.chat.completions.create(**asked)).choices[0].message
            if not message.tool_calls:
                return str(message.content)
            said.append(message)
            for call in message.tool_calls:
                told, _ = run(call.function.name, json.loads(call.function.arguments))
                said.append({"role": "tool", "tool_call_id": call.id, "content": told})


async def responses(url: str, stream: bool) -> str:
    """OpenAI Responses; the tool result also contains an image."""
    tools: Any = [
        {"type": "function", "name": n, "description": ABOUT[n], "parameters": s, "strict": False}
        for n, s in SCHEMAS.items()
    ]
    image = {"type": "input_image", "image_url": DATA_URL, "detail": "auto"}
    said: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}, image]}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=DEADLINE_S) as sdk:
        while True:
            asked: Any = {"model": "m", "input": said, "tools": tools, "instructions": SYSTEM}
            if stream:
                async with sdk.responses.stream(**asked) as events:
                    kinds = [event.type async for event in events]
                    response: Any = await events.get_final_response()
            else:
                response = await sdk.responses.create(**asked)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return str(response.output_text)
            assert not stream or kinds.count("response.function_call_arguments.delta") > 4
            said += response.output
            for call in calls:
                told, failed = run(call.name, json.loads(call.arguments))
                output = told if failed else [{"type": "input_text", "text": told}, image]
                said.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


async def messages(url: str, stream: bool) -> str:
    """Anthropic Messages; the tool result also contains an image, and errors have `is_error`."""
    tools: Any = [{"name": n, "description": ABOUT[n], "input_schema": s} for n, s in SCHEMAS.items()]
    said: list[Any] = [{"role": "user", "content": [text(QUESTION), IMAGE]}]
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0, timeout=DEADLINE_S) as sdk:
        while True:
            asked: Any = {"model": "m", "messages": said, "tools": tools, "system": SYSTEM, "max_tokens": 999}
            if stream:
                async with sdk.messages.stream(**asked) as events:
                    kinds = [event.type async for event in events]
                    message: Any = await events.get_final_message()
                assert kinds.count("input_json") > 4 or message.stop_reason != "tool_use"
            else:
                message = await sdk.messages.create(**asked)
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in message.content)
            results = []
            for call in calls:
                told, failed = run(call.name, call.input)
                content: Any = told if failed else [text(told), IMAGE]
                mark = {"is_error": True} if failed else {}
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": content, **mark})
            said += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


# LangChain, whose packages take a second to import: each process of the tests collects this file

LANGCHAIN_IMAGE: Final = {"type": "image", "base64": PICTURE, "mime_type": "image/png"}


def langchain_tools(pictures: bool) -> list[Any]:
    """Tools that run in this process; `check-door` fails."""
    from langchain_core.tools import StructuredTool, ToolException

    def made(name: str) -> StructuredTool:
        async def tool(**arguments: Any) -> Any:
            told, failed = run(name, arguments)
            if failed:
                raise ToolException(told)
            return [text(told), dict(LANGCHAIN_IMAGE)] if pictures else told

        about = {"name": name, "description": ABOUT[name] or name, "args_schema": SCHEMAS[name]}
        return StructuredTool(coroutine=tool, handle_tool_error=True, **about)

    return [made(name) for name in SCHEMAS]


async def langchain(model: Any, pictures: bool = True) -> str:
    """Runs a LangChain agent, and returns its last text."""
    from langchain.agents import create_agent

    agent = create_agent(model, langchain_tools(pictures), system_prompt=SYSTEM)
    asked: Any = {"messages": [{"role": "user", "content": [text(QUESTION), LANGCHAIN_IMAGE]}]}
    done = await agent.ainvoke(asked)
    return str(done["messages"][-1].text)


async def langchain_chat(url: str, stream: bool) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="m", base_url=f"{url}/v1", api_key=KEY, max_retries=0, streaming=stream)
    return await langchain(model, pictures=False)


async def langchain_responses(url: str, stream: bool) -> str:
    from langchain_openai import ChatOpenAI

    settings: Any = {"streaming": stream, "use_responses_api": True}
    return await langchain(ChatOpenAI(model="m", base_url=f"{url}/v1", api_key=KEY, max_retries=0, **settings))


async def langchain_messages(url: str, stream: bool) -> str:
    from langchain_anthropic import ChatAnthropic

    return await langchain(ChatAnthropic(model="m", base_url=url, api_key=KEY, max_retries=0, streaming=stream))


Client: TypeAlias = Callable[[str, bool], Awaitable[str]]
IMAGE_RESULT_CLIENTS: Final = (responses, messages, langchain_responses, langchain_messages)
"""Clients whose API allows images in tool results."""
ERROR_FLAG_CLIENTS: Final = (messages, langchain_messages)
"""Clients whose API has an error flag in tool results."""


PACKAGES: Final = {
    **dict.fromkeys(("chat", "responses"), "openai for Python"),
    "messages": "anthropic for Python",
    **dict.fromkeys(("langchain_chat", "langchain_responses", "langchain_messages"), "LangChain"),
}
SDK_CASES: Final = [(client, stream) for client in (chat, responses, messages) for stream in (False, True)]
LANGCHAIN_CASES: Final = [(client, True) for client in (langchain_chat, langchain_responses, langchain_messages)]


@pytest.mark.ran(PACKAGES, "claude CLI")
@MODES
@pytest.mark.parametrize(
    ("client", "stream"),
    [*SDK_CASES, *LANGCHAIN_CASES],
    ids=lambda it: getattr(it, "__name__", "streamed" if it else "whole"),
)
async def test_client_tool_round_trip_on_claude_cli(client: Client, stream: bool, mode: str, tmp_path: Path) -> None:
    async with behind_claude(Turns(ANSWERS), tmp_path, mode) as chain:
        assert await client(chain.url, stream) == LAST
    first, second = chain.seen()
    for seen, posted in zip((first, second), chain.posted, strict=True):
        assert seen.system == SYSTEM
        assert seen.tools == offered(posted)
        assert set(seen.tools) == set(SCHEMAS)
    asked, called, told = second.said
    assert first.said == [asked] == [("user", [text(QUESTION), IMAGE])]
    assert called == ("assistant", [text("Let me look."), *made_calls()])
    (weather, _), (door, _) = (run(*call) for call in CALLS)
    mark = {"is_error": True} if client in ERROR_FLAG_CLIENTS else {}
    assert told == (
        "user",
        [result(0, [text(weather), IMAGE] if client in IMAGE_RESULT_CLIENTS else weather), result(1, door) | mark],
    )


def made_calls() -> list[Any]:
    """The calls of the first response, as the model gets them."""
    return [
        {"type": "tool_use", "id": f"toolu_0_{index}", "name": PREFIX + name, "input": arguments}
        for index, (name, arguments) in enumerate(CALLS)
    ]


def result(index: int, content: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": f"toolu_0_{index}", "content": content}


@pytest.mark.ran(PACKAGES, "claude CLI")
@pytest.mark.parametrize("client", [chat, responses, messages, langchain_chat, langchain_messages])
async def test_client_tool_round_trip_in_text_mode(client: Client, tmp_path: Path) -> None:
    """In text mode: the prompt contains tools, calls and results as text, and images as blocks."""
    async with asyncio.timeout(DEADLINE_S), behind_claude(Turns(ANSWERS), tmp_path, "text") as chain:
        assert await client(chain.url, True) == LAST
    first, second = chain.seen()
    for seen in (first, second):
        assert seen.system.startswith(SYSTEM)
        assert seen.tools == {}
        assert all(name in seen.system for name in SCHEMAS)
        assert seen.blocks("image")[0] == IMAGE
    ((role, blocks),) = second.said
    told = "".join(block.get("text", "") for block in blocks)
    places = [told.index(words) for words in (QUESTION, "Let me look.", *(run(*call)[0] for call in CALLS))]
    assert (role, places) == ("user", sorted(places))
    assert len(second.blocks("image")) == (2 if client in IMAGE_RESULT_CLIENTS else 1)


# A long history

PAST: Final = [
    (f"And in town {n}? " + 'é"\\' * 250, f"toolu_past_{n}", {"city": f"Town {n}"}, "18 °\n" * 150) for n in range(100)
]
"""Questions, ids, arguments and results of a hundred calls."""


@pytest.mark.ran("openai for Python", "claude CLI")
@MODES
async def test_long_history_is_sent_unchanged(mode: str, tmp_path: Path) -> None:
    """A history of 200 KB, sent with the openai package; each call stays with its result."""
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMAS["get_weather"]}}
    said: list[Any] = []
    for question, id, arguments, told in PAST:
        call = {"name": "get_weather", "arguments": json.dumps(arguments)}
        said += [
            {"role": "user", "content": question},
            {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": id, "content": told},
            {"role": "assistant", "content": "As I said."},
        ]
    said.append({"role": "user", "content": "Thank you."})
    assert len(json.dumps(said, ensure_ascii=False).encode()) > 200_000
    settings: Any = {"api_key": "k", "max_retries": 0, "timeout": DEADLINE_S}
    async with (
        behind_claude(Turns([Says(LAST)]), tmp_path, mode) as chain,
        openai.AsyncOpenAI(base_url=f"{chain.url}/v1", **settings) as sdk,
    ):
        reply = await sdk.chat.completions.create(model="m", messages=said, tools=[tool])
    assert reply.choices[0].message.content == LAST
    (seen,) = chain.seen()
    expected: list[Any] = []
    for question, id, arguments, told in PAST:
        use = {"type": "tool_use", "id": id, "name": f"{PREFIX}get_weather", "input": arguments}
        expected += [
            ("user", [text(question)]),
            ("assistant", [use]),
            ("user", [{"type": "tool_result", "tool_use_id": id, "content": told}]),
            ("assistant", [text("As I said.")]),
        ]
    assert seen.said == [*expected, ("user", [text("Thank you.")])]
