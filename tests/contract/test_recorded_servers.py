"""Recorded responses of real vLLM and exo servers, replayed to the gateway: what its clients receive.

tests/data/servers describes how each was recorded.
"""

import asyncio
import json
import re
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import dialects
from dragoman.core import events as ev
from dragoman.core.backend import ExchangeContext
from support import ran_pairs
from support.check_each import check_each_async
from support.servers.recorded import REQUESTS, Exchange, exchanges, names, replaying
from support.servers.rounds import CLIENTS
from support.text_upstream import FRONTS, Answer, ask, gateway

PARIS = [("get_weather", {"city": "Paris"})]
LEAKED = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
KEPT = {name: exchanges(name) for name in names()}
MODES = ("native", "parse")


def of(server: str, asked: str, api: str = "", stream: bool | None = None) -> list[Exchange]:
    return [
        each for each in KEPT[server] if each.asked == asked and api in ("", each.api) and stream in (None, each.stream)
    ]


def title(case: tuple[str, str, Exchange]) -> str:
    server, mode, kept = case
    return f"{server}-{mode}-{kept.api}-{'streamed' if kept.stream else 'whole'}"


def cases(asked: str, *servers: str) -> list[tuple[str, str, Exchange]]:
    return [(server, mode, kept) for server in servers for mode in MODES for kept in of(server, asked)]


async def ask_replayed(mode: str, kept: Exchange, front: str) -> Answer:
    with replaying(kept.answer) as url:
        async with gateway(url, tool_mode=mode, call_format="hermes", api=kept.api) as (own, _):
            return await ask(own, front, replace(REQUESTS[kept.asked], model="m", stream=kept.stream))


def chunks(kept: Exchange) -> list[Any]:
    """The chunks of a streamed Chat Completions response."""
    return [json.loads(found) for found in re.findall(r"^data: (\{.*\})", kept.answer.decode(), re.M)]


def events(kept: Exchange) -> list[ev.AnyEvent]:
    """The events that the dialect of the server's API reads from the body."""
    body = re.sub(rb"^[0-9a-f]+\r\n|\r\n$", b"", kept.answer.partition(b"\r\n\r\n")[2], flags=re.M)
    reader = dialects.get(kept.api).reader(REQUESTS[kept.asked], ExchangeContext("1", 0, lambda: "x"))
    return [*reader.feed(body), *reader.close()]


@pytest.mark.parametrize("front", FRONTS)
async def test_recorded_call_reaches_client(front: str, subtests: pytest.Subtests) -> None:
    await check_each_async(subtests, cases("call", *KEPT), partial(check_call, front=front), title)


async def check_call(case: tuple[str, str, Exchange], front: str) -> None:
    _, mode, kept = case
    answer = await ask_replayed(mode, kept, front)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == (PARIS, "", "tool_calls")


@pytest.mark.parametrize("front", FRONTS)
async def test_recorded_final_text_reaches_client(front: str, subtests: pytest.Subtests) -> None:
    await check_each_async(subtests, cases("answer", *KEPT), partial(check_final_text, front=front), title)


async def check_final_text(case: tuple[str, str, Exchange], front: str) -> None:
    _, mode, kept = case
    answer = await ask_replayed(mode, kept, front)
    assert (answer.calls, answer.text, answer.reply.finish_reason) == ([], "Paris: sun, 20 degrees.", "stop")
    if not kept.stream:  # recorded without `stream_options`
        assert answer.reply.usage is not None
        assert answer.reply.usage.output_tokens == 10


@pytest.mark.ran(ran_pairs.PYTHON, {"vllm": "vLLM", "exo": "exo"})
@pytest.mark.parametrize("server", KEPT)
@pytest.mark.parametrize("front", FRONTS)
async def test_vendor_sdk_receives_recorded_call(front: str, server: str) -> None:
    """Each SDK uses its own API; the server streamed Chat Completions."""
    (kept,) = of(server, "call", "openai_chat", stream=True)
    with replaying(kept.answer) as url:
        async with gateway(url, tool_mode="native", api=kept.api) as (own, _):
            asked = replace(REQUESTS["call"], model="m")
            text, calls, end = await asyncio.to_thread(CLIENTS[front].ask, own, asked, front, True)
    assert ([(call.name, json.loads(call.arguments)) for call in calls], text) == (PARIS, "")
    assert end == CLIENTS[front].ends[0]


def test_exo_leaves_valid_call_in_text() -> None:
    """Its parser searches for the tag in single tokens, but this tag is several tokens."""
    for kept in of("exo", "call"):
        told = [e.text for e in events(kept) if isinstance(e, ev.TextDelta)]
        assert "".join(told) == LEAKED
        assert not any(isinstance(e, ev.ToolCallStart) for e in events(kept))


def test_exo_chunks_have_object_chat_completion() -> None:
    (kept,) = of("exo", "call", "openai_chat", stream=True)
    assert {chunk["object"] for chunk in chunks(kept)} == {"chat.completion"}


def test_vllm_streams_arguments_token_by_token() -> None:
    """Arguments are streamed, but a quote is buffered until the next character shows whether it ends a string."""
    (kept,) = of("vllm", "call", "openai_chat", stream=True)
    calls = [call for chunk in chunks(kept) for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    sent = [call["function"]["arguments"] for call in calls if "arguments" in call["function"]]
    assert (len(sent), "".join(sent)) == (7, '{"city": "Paris"}')
    *before, quote, brace = sent
    assert [e.text for e in events(kept) if isinstance(e, ev.ToolCallDelta)] == [*before, quote + brace]


@pytest.mark.parametrize("front", FRONTS)
async def test_required_call_truncated_by_vllm_is_not_emitted(front: str, subtests: pytest.Subtests) -> None:
    """Not streamed, vLLM leaves half a call in the text; streamed, half its arguments. Clients get no call."""
    await check_each_async(subtests, cases("cut", "vllm"), partial(check_no_call, front=front), title)


async def check_no_call(case: tuple[str, str, Exchange], front: str) -> None:
    _, mode, kept = case
    answer = await ask_replayed(mode, kept, front)
    assert (answer.calls, answer.reply.finish_reason) == ([], "length")
    assert "<tool_call>" in kept.answer.decode() or "get_weather" in kept.answer.decode()
    assert "get_weather" in answer.text
    if mode == "parse":
        assert "incomplete_call" in answer.warnings


@pytest.mark.parametrize("front", FRONTS)
async def test_required_call_with_wrong_type_is_forwarded(front: str, subtests: pytest.Subtests) -> None:
    """The model writes the parameter's schema as its value. The client is expected to report this to the model."""
    await check_each_async(subtests, cases("senseless", "vllm"), partial(check_wrong_type, front=front), title)


async def check_wrong_type(case: tuple[str, str, Exchange], front: str) -> None:
    _, mode, kept = case
    answer = await ask_replayed(mode, kept, front)
    assert (answer.calls, answer.reply.finish_reason) == ([("get_weather", {"city": {"type": "string"}})], "tool_calls")
