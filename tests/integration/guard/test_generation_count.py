"""The number of generations for one response: at most two, for every model error, in every mode and by every API."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.gguf import Metadata
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.catalog import models
from dragoman.core.messages import Message, Request, Text, ToolCall, ToolChoice, ToolResult
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from support.fake_upstream import END, HEAD, piece, server
from support.scripted_backend import serving
from support.scripted_llama import ScriptedLlama
from support.text_upstream import ARGUMENTS, FRONTS, PING, QUESTION, WEATHER, Answer, ask, gateway, writes

pytestmark = pytest.mark.asyncio


def call(name: str, arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


REPEAT = call("get_weather", {"city": "Paris", "days": 3})
OTHER = call("get_weather", {"city": "Rome", "days": 3})
INVALID = call("get_weather", {"days": "many"})
UNOFFERED = '{"name": "greet", "arguments": {}}'
PLAIN = "It is sunny."
MODEL_ERRORS = {
    "repeat": REPEAT,
    "text, then repeat": f"Let me look.\n{REPEAT}",
    "repeat twice": f"{REPEAT}\n{REPEAT}",
    "invalid": INVALID,
    "invalid, then repeat": f"{INVALID}\n{REPEAT}",
    "repeat, then invalid": f"{REPEAT}\n{INVALID}",
    "unoffered": UNOFFERED,
    "unoffered, then repeat": f"{UNOFFERED}\n{REPEAT}",
    "broken": '<tool_call>\n{"name": "get_weather", "arguments": {"city": Paris}}\n</tool_call>',
    "text": PLAIN,
    "nothing": "",
}
CHOICES = {
    "auto": ToolChoice(),
    "one": ToolChoice(parallel_tool_calls=False),
    "required": ToolChoice("required"),
    "named": ToolChoice("named", "get_weather"),
    "none": ToolChoice("none"),
}


def asked(choice: str = "auto", result: str = "18 degrees", *, failed: bool = False, **more: Any) -> Request:
    made = ToolCall("call_1", "get_weather", ARGUMENTS)
    ask_embedded = ToolResult("call_1", (Text(result),), is_error=failed)
    messages = (QUESTION, Message("assistant", (made,)), Message("tool", (ask_embedded,)))
    return replace(Request("m", messages, (WEATHER, PING), max_tokens=200), tool_choice=CHOICES[choice], **more)


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class RepeatingLlama(ScriptedLlama):
    """An embedded model that writes these texts in turn, and then repeats the last one."""

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts[:-1], *[texts[-1]] * 99)
        self.prompts: list[str] = []

    def complete(self, body: Any, *, admitted: bool = False, slot: Any = None) -> Any:
        self.prompts.append(body["prompt"])
        return super().complete(body, admitted=admitted, slot=slot)

    async def start(self) -> None:
        """Does nothing: the scripted engine needs no start."""

    async def close(self) -> None:
        """Does nothing: the scripted engine needs no stop."""


Count = Callable[[], int]


@contextlib.asynccontextmanager
async def embedded(*texts: str, policy: GuardPolicy | None = None) -> AsyncIterator[tuple[str, Count, RepeatingLlama]]:
    profile = replace(models.default(), name="m", after_result="no_repeats")
    metadata = Metadata("m", CHATML, 4096, "", "", ("<|im_start|>", "<|im_end|>"), ())
    backend = EmbeddedModel(Path("m.gguf"), profile, EmbeddedConfig(), lambda _: None, metadata)  # type: ignore[arg-type]
    backend.engine = model = RepeatingLlama(*texts)
    async with serving(Gateway([backend], policy=policy or GuardPolicy())) as (_, url):
        yield url, lambda: len(model.prompts), model


@contextlib.asynccontextmanager
async def native(text: str) -> AsyncIterator[tuple[str, Count]]:
    """A server that parses such calls itself."""
    calls = [
        json.loads(each) for each in text.replace("</tool_call>", "").split("<tool_call>")[1:] if "Paris}" not in each
    ]
    said = text.split("<tool_call>")[0]

    async def play(_: Any, writer: Any) -> None:
        functions = (
            {
                "index": i,
                "id": f"call_x{i}",
                "type": "function",
                "function": {"name": each["name"], "arguments": json.dumps(each["arguments"])},
            }
            for i, each in enumerate(calls)
        )
        deltas = [*([{"content": said}] if said else []), *({"tool_calls": [each]} for each in functions)]
        writer.write(
            HEAD + b"".join(piece(each) for each in deltas) + piece({}, "tool_calls" if calls else "stop") + END
        )

    async with server(play) as far, gateway(far.url) as (url, _):
        yield url, lambda: len(far.asked)


@contextlib.asynccontextmanager
async def text_server(mode: str, text: str) -> AsyncIterator[tuple[str, Count]]:
    async with server(writes(text)) as far, gateway(far.url, tool_mode=mode, call_format="hermes") as (url, _):
        yield url, lambda: len(far.asked)


@contextlib.asynccontextmanager
async def model(mode: str, text: str) -> AsyncIterator[tuple[str, Count]]:
    match mode:
        case "embedded":
            async with embedded(text) as (url, count, _):
                yield url, count
        case "native":
            async with native(text) as pair:
                yield pair
        case _:
            async with text_server(mode, text) as pair:
                yield pair


MODES = ["embedded", "native", "parse", "prompt"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("slip", MODEL_ERRORS)
async def test_response_needs_at_most_two_generations(mode: str, slip: str) -> None:
    """The model repeats the same error; all APIs and tool choices, streamed and complete."""
    schema = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
    requests = [
        *itertools.starmap(asked, itertools.product(CHOICES, ["18 degrees", "ERROR: no such city"])),
        asked(failed=True),
        asked(response_schema=schema),
        asked("required", response_schema=schema),
    ]
    async with model(mode, MODEL_ERRORS[slip]) as (url, count):
        for number, request in enumerate(requests):
            front, stream = FRONTS[number % 3], number % 2 > 0
            before = count()
            await ask(url, front, replace(request, stream=stream))
            assert 1 <= count() - before <= 2, (front, stream, request.tool_choice, request.messages[-1])


async def ask_embedded(front: str, request: Request, *texts: str, **more: Any) -> tuple[Answer, RepeatingLlama]:
    async with embedded(*texts, **more) as (url, _, model):
        return await ask(url, front, request), model


PARIS, ROME = ("get_weather", json.loads(ARGUMENTS)), ("get_weather", {"city": "Rome", "days": 3})


def guard_codes(answer: Answer) -> set[str]:
    return {"duplicate_call_dropped", "reasked", "reask_failed"} & set(answer.warnings)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("choice", ["auto", "required", "named"])
@pytest.mark.parametrize("result", ["18 degrees", "ERROR: no such city"])
async def test_repeated_call_is_re_asked_with_its_result(front: str, choice: str, result: str) -> None:
    answer, model = await ask_embedded(front, asked(choice, result), REPEAT, OTHER)
    assert (answer.calls, answer.text) == ([ROME], "")
    assert guard_codes(answer) == {"duplicate_call_dropped", "reasked"}
    first, second = model.prompts
    assert (first.count(result), second.count(result)) == (1, 2)
    assert "get_weather" in second.rpartition("<|im_start|>user")[2]
    assert ("answer" in second.rpartition("<|im_start|>user")[2]) == (choice == "auto" and "ERROR" not in result)
    assert first.count("days") <= second.count("days"), "the tools stay"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("choice", ["auto", "required", "named"])
async def test_call_repeated_after_re_ask_is_forwarded(front: str, choice: str) -> None:
    answer, model = await ask_embedded(front, asked(choice), REPEAT)
    assert (answer.calls, answer.reply.finish_reason) == ([PARIS], "tool_calls")
    assert guard_codes(answer) == {"duplicate_call_dropped", "reasked", "reask_failed"}
    assert len(model.prompts) == 2


async def test_text_response_to_re_ask_is_used() -> None:
    answer, _ = await ask_embedded("openai_chat", asked(), f"Let me look.\n{REPEAT}", PLAIN)
    assert (answer.calls, answer.text) == ([], f"Let me look.\n\n{PLAIN}")


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_repeated_call_is_forwarded_if_re_ask_is_empty(choice: str) -> None:
    answer, _ = await ask_embedded("openai_chat", asked(choice), REPEAT, "")
    assert answer.calls == [PARIS]
    assert "reask_failed" in guard_codes(answer)


@pytest.mark.parametrize("refused", ["refused", "refused again"])
async def test_repeated_call_is_forwarded_if_re_ask_fails(refused: str) -> None:
    answer, _ = await ask_embedded("openai_chat", asked(), REPEAT, *(["refused"] * (1 + refused.count("again"))))
    assert answer.calls == [PARIS]


async def test_rejected_grammar_is_not_sent_with_re_ask() -> None:
    answer, model = await ask_embedded("openai_chat", asked(), "refused", REPEAT, OTHER)
    assert answer.calls == [ROME]
    assert len(model.prompts) == 3  # the first wrote nothing


async def test_re_ask_replaces_call_of_unoffered_tool() -> None:
    answer, model = await ask_embedded("openai_chat", asked(), f"{UNOFFERED}\n{REPEAT}", OTHER)
    assert (answer.calls, len(model.prompts)) == ([ROME], 2)
    assert "greet" not in answer.text


async def test_missing_required_call_after_re_ask_is_reported() -> None:
    answer, model = await ask_embedded("openai_chat", asked("required"), REPEAT, PLAIN)
    assert (answer.text, len(model.prompts)) == (PLAIN, 2)
    assert "reask_failed" in guard_codes(answer)


async def test_usage_includes_both_generations() -> None:
    answer, _ = await ask_embedded("openai_chat", asked(), REPEAT, PLAIN)
    assert answer.reply.usage.input_tokens == 20
    assert answer.reply.usage.output_tokens > len(PLAIN)


async def test_max_identical_calls_re_asks_with_the_result() -> None:
    texts = [REPEAT, PLAIN]
    async with server(lambda far, writer: writes(texts[len(far.asked) - 1])(far, writer)) as far:
        config = HttpConfig(url=f"{far.url}/v1", models=("m",), tool_mode="prompt", call_format="hermes")
        async with serving(Gateway([HttpBackend("far", config, {})], policy=GuardPolicy(max_identical_calls=1))) as (
            _,
            url,
        ):
            answer = await ask(url, "openai_chat", asked())
    assert (answer.calls, answer.text, len(far.asked)) == ([], PLAIN, 2)
    assert far.asked[1][2].count(b"18 degrees") == 2
