"""The vendors' SDKs with the real model: calls, results and limits, with and without streaming."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import jsonschema
import openai
import pytest

from support.gateway import DEADLINE_S, MODEL, Gateway

pytestmark = pytest.mark.model

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"item": {"enum": ["tea", "coffee"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["item", "count"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "place_order": ORDER}
ABOUT = {"get_weather": "The weather of a city now.", "place_order": "Order something to drink."}
QUESTION = "What is the weather in Bern, in celsius?"
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def is_valid(name: str, arguments: Any) -> bool:
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(arguments)
    return True


class OpenAI:
    """Sends requests with the openai package; streamed responses are assembled by the SDK."""

    def __init__(self, url: str) -> None:
        self.sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)
        self.tools: list[Any] = [
            {"type": "function", "function": {"name": n, "description": ABOUT[n], "parameters": s}}
            for n, s in SCHEMAS.items()
        ]

    def ask(self, stream: bool, messages: list[Any], **more: Any) -> Any:
        settings = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 150, **more}
        if not stream:
            return self.sdk.chat.completions.create(**settings)
        try:
            with self.sdk.chat.completions.stream(**settings, stream_options={"include_usage": True}) as events:
                return events.get_final_completion()
        except openai.LengthFinishReasonError as cut:
            return cut.completion


class Anthropic:
    """Sends requests with the anthropic package; streamed responses are assembled by the SDK."""

    def __init__(self, url: str) -> None:
        self.sdk = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=DEADLINE_S)
        self.tools: list[Any] = [{"name": n, "description": ABOUT[n], "input_schema": s} for n, s in SCHEMAS.items()]

    def ask(self, stream: bool, messages: list[Any], **more: Any) -> Any:
        settings = {"model": MODEL, "messages": messages, "max_tokens": 150, "extra_body": {"temperature": 0}, **more}
        if not stream:
            return self.sdk.messages.create(**settings)
        with self.sdk.messages.stream(**settings) as events:
            return events.get_final_message()


@pytest.fixture(scope="module")
def chat(gateway: Gateway) -> Iterator[OpenAI]:
    client = OpenAI(gateway.url)
    yield client
    client.sdk.close()


@pytest.fixture(scope="module")
def messages(gateway: Gateway) -> Iterator[Anthropic]:
    client = Anthropic(gateway.url)
    yield client
    client.sdk.close()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# Calls


@pytest.mark.ran("openai for Python", "embedded model")
@STREAMED
def test_openai_tool_call_round_trip(stream: bool, chat: OpenAI) -> None:
    asked = chat.ask(stream, [user(QUESTION)], tools=chat.tools, tool_choice="required")
    (choice,) = asked.choices
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert is_valid(call.function.name, json.loads(call.function.arguments))
    assert asked.usage.prompt_tokens > 50
    assert asked.usage.completion_tokens > 5
    assert asked.usage.total_tokens == asked.usage.prompt_tokens + asked.usage.completion_tokens
    past = {"role": "assistant", "tool_calls": [c.model_dump(include=CALL_FIELDS) for c in choice.message.tool_calls]}
    results = [
        {"role": "tool", "tool_call_id": c.id, "content": "18 degrees celsius and sunny"}
        for c in choice.message.tool_calls
    ]
    told = chat.ask(stream, [user(QUESTION), past, *results], tools=chat.tools)
    assert told.choices[0].message.content
    assert told.choices[0].finish_reason in ("stop", "length")


CALL_FIELDS: Any = {"id": True, "type": True, "function": {"name", "arguments"}}


@pytest.mark.ran("anthropic for Python", "embedded model")
@STREAMED
def test_anthropic_tool_call_round_trip(stream: bool, messages: Anthropic) -> None:
    asked = messages.ask(stream, [user(QUESTION)], tools=messages.tools, tool_choice={"type": "any"})
    assert asked.stop_reason == "tool_use"
    calls = [block for block in asked.content if block.type == "tool_use"]
    assert all(is_valid(call.name, call.input) for call in calls)
    assert asked.usage.output_tokens > 5
    assert asked.usage.input_tokens + asked.usage.cache_read_input_tokens > 50
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "18 degrees and sunny"} for c in calls]
    past = {"role": "assistant", "content": asked.content}
    told = messages.ask(stream, [user(QUESTION), past, user(results)], tools=messages.tools)  # type: ignore[arg-type]
    assert "".join(block.text for block in told.content if block.type == "text")
    assert told.stop_reason in ("end_turn", "max_tokens")


@STREAMED
def test_openai_named_tool_choice_is_honoured(stream: bool, chat: OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "place_order"}}
    asked = chat.ask(stream, [user(QUESTION)], tools=chat.tools, tool_choice=choice)
    assert {c.function.name for c in asked.choices[0].message.tool_calls} == {"place_order"}
    assert all(is_valid("place_order", json.loads(c.function.arguments)) for c in asked.choices[0].message.tool_calls)


@STREAMED
def test_anthropic_named_tool_choice_is_honoured(stream: bool, messages: Anthropic) -> None:
    choice = {"type": "tool", "name": "place_order"}
    asked = messages.ask(stream, [user(QUESTION)], tools=messages.tools, tool_choice=choice)
    calls = [block for block in asked.content if block.type == "tool_use"]
    assert {c.name for c in calls} == {"place_order"}
    assert all(is_valid("place_order", c.input) for c in calls)


TWO_CALLS_QUESTION = "Get the weather in Bern in celsius, and get the weather in Rome in celsius."


@STREAMED
def test_parallel_tool_calls_can_be_disabled(stream: bool, chat: OpenAI, messages: Anthropic) -> None:
    asked = chat.ask(
        stream, [user(TWO_CALLS_QUESTION)], tools=chat.tools, tool_choice="required", parallel_tool_calls=False
    )
    assert len(asked.choices[0].message.tool_calls) == 1
    choice = {"type": "any", "disable_parallel_tool_use": True}
    told = messages.ask(stream, [user(TWO_CALLS_QUESTION)], tools=messages.tools, tool_choice=choice)
    assert [block.type for block in told.content] == ["tool_use"]


def test_tool_choice_none_returns_text(chat: OpenAI, messages: Anthropic) -> None:
    asked = chat.ask(False, [user(QUESTION)], tools=chat.tools, tool_choice="none", max_tokens=30)
    assert asked.choices[0].message.tool_calls is None
    assert asked.choices[0].message.content
    choice = {"type": "none"}
    told = messages.ask(False, [user(QUESTION)], tools=messages.tools, tool_choice=choice, max_tokens=30)
    assert [block.type for block in told.content] == ["text"]


def test_response_ids_have_style_of_api(chat: OpenAI, messages: Anthropic) -> None:
    asked = chat.ask(False, [user(QUESTION)], tools=chat.tools, tool_choice="required", parallel_tool_calls=False)
    assert asked.id.startswith("chatcmpl-")
    assert asked.choices[0].message.tool_calls[0].id.isascii()
    told = messages.ask(False, [user(QUESTION)], tools=messages.tools, tool_choice={"type": "any"})
    assert told.id.startswith("msg_")


# Finish reasons


@STREAMED
def test_openai_stop_string_ends_response(stream: bool, chat: OpenAI) -> None:
    asked = chat.ask(stream, [user("Say: one, two, three.")], stop=["a", "e", "i", "o", "u"])
    assert asked.choices[0].finish_reason == "stop"
    assert not set("aeiou") & set(asked.choices[0].message.content)


@STREAMED
def test_anthropic_stop_sequence_ends_response_and_is_reported(stream: bool, messages: Anthropic) -> None:
    vowels = ["a", "e", "i", "o", "u"]
    told = messages.ask(stream, [user("Say: one, two, three.")], stop_sequences=vowels)
    assert told.stop_reason == "stop_sequence"
    assert told.stop_sequence in vowels
    assert not set("aeiou") & set("".join(block.text for block in told.content))


@STREAMED
def test_max_tokens_limits_output(stream: bool, chat: OpenAI, messages: Anthropic) -> None:
    long = [user("Write a list of 500 animals, one a line.")]
    asked = chat.ask(stream, long, max_tokens=7)
    assert asked.choices[0].finish_reason == "length"
    assert asked.usage.completion_tokens == 7
    told = messages.ask(stream, long, max_tokens=7)
    assert told.stop_reason == "max_tokens"
    assert told.usage.output_tokens == 7


def test_truncated_call_has_length_finish_reason(chat: OpenAI) -> None:
    asked = chat.ask(False, [user(QUESTION)], tools=chat.tools, tool_choice="required", max_tokens=12)
    assert asked.choices[0].finish_reason == "length"


@STREAMED
def test_openai_structured_output_matches_schema(stream: bool, chat: OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}
    asked = chat.ask(stream, [user("I would like two cups of tea.")], response_format=form)
    jsonschema.Draft202012Validator(ORDER).validate(json.loads(asked.choices[0].message.content))


def test_anthropic_structured_output_matches_schema(messages: Anthropic) -> None:
    form = {"format": {"type": "json_schema", "schema": ORDER}}
    told = messages.ask(False, [user("I would like two cups of tea.")], output_config=form)
    jsonschema.Draft202012Validator(ORDER).validate(json.loads(told.content[0].text))


# Models and errors


def test_vendor_sdks_list_models(chat: OpenAI, messages: Anthropic) -> None:
    assert [m.id for m in chat.sdk.models.list()] == [MODEL]
    assert [m.id for m in messages.sdk.models.list()] == [MODEL, f"claude-{MODEL}"]  # for Claude Code's discovery
    assert chat.sdk.models.retrieve(MODEL).owned_by == "dragoman"
    assert messages.sdk.models.retrieve(MODEL).display_name == MODEL


@STREAMED
def test_errors_raise_sdk_exceptions(stream: bool, chat: OpenAI, messages: Anthropic) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        chat.ask(stream, [user("Hi.")], model="none")
    with pytest.raises(anthropic.NotFoundError, match="unknown model"):
        messages.ask(stream, [user("Hi.")], model="none")
    with pytest.raises(openai.BadRequestError) as overflow:
        chat.ask(stream, [user("hello " * 9000)])
    assert overflow.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 9031 tokens > 8192 maximum"):
        messages.ask(stream, [user("hello " * 9000)])
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        chat.sdk.models.retrieve("none")
