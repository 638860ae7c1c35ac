"""Every client API with every upstream API, over HTTP: requests and responses arrive unchanged.

client ─front's write_request→ gateway ─behind's write_request→ gateway ─ a scripted backend

The client is the request writer and response reader of the front dialect; the upstream server is a second gateway. So
no pair of APIs is named anywhere. What an API cannot represent is stated once for each API, in `REPLY_LOSSES`.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from dragoman import dialects
from dragoman.backends.http import retry
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import Collector
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.identifiers import CALL_ID, valid_call_id
from dragoman.gateway.gateway import Gateway
from dragoman.text.stop_strings import StopStrings
from support import worker_gateway
from support.check_each import check_each_async
from support.http_client import http_client
from support.scripted_backend import Scripted, served, serving

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.serve]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'
TOOLS = (v.Tool("weather", "The weather of a city.", SCHEMA), v.Tool("now", "The time."))
IMAGE = v.Image(v.MediaSource("image/png", data=PIXEL))
LONG = json.dumps({"city": 'Bern, "the" capital \\ é 🐻 ' * 4000}, ensure_ascii=False)
USED = UsageUpdate(v.Usage(input_tokens=30, output_tokens=9, cached_input_tokens=10, reasoning_tokens=2))


def said(text: str) -> v.Message:
    return v.Message("user", (v.Text(text),))


def call(index: int, arguments: str, name: str = "weather") -> list[AnyEvent]:
    pieces = [arguments[at : at + 997] for at in range(0, len(arguments), 997)]
    start = ToolCallStart(index, f"call_{index}", name)
    return [start, *(ToolCallDelta(index, piece) for piece in pieces), ToolCallEnd(index)]


def conversation_with(result: v.ToolResult) -> tuple[v.Message, ...]:
    """A conversation that ends with this result of a call."""
    calls = v.Message("assistant", (v.Text("Let me look."), v.ToolCall("call_7", "weather", '{"city":"Bern"}')))
    return (said("Weather in Bern?"), calls, v.Message("tool", (result,)))


@dataclass(frozen=True)
class Scenario:
    """The client's request, and the events of the last backend."""

    events: list[AnyEvent]
    messages: tuple[v.Message, ...] = (said("Weather in Bern?"),)
    more: dict[str, Any] = field(default_factory=dict)


SCENARIOS = {
    "text": Scenario([TextDelta("It is "), TextDelta("cold."), USED, Finish("stop")]),
    "one call": Scenario([*call(0, '{"city":"Bern"}'), USED, Finish("tool_calls")]),
    "a call without arguments": Scenario([*call(0, "{}", "now"), USED, Finish("tool_calls")]),
    "parallel calls": Scenario([*call(0, '{"city":"Bern"}'), *call(1, "{}", "now"), USED, Finish("tool_calls")]),
    "text, call, text": Scenario(
        [TextDelta("First."), *call(0, '{"city":"Bern"}'), TextDelta("Then."), USED, Finish("tool_calls")]
    ),
    "thoughts and a call": Scenario(
        [ReasoningDelta("Hm, "), ReasoningDelta("Bern."), *call(0, '{"city":"Bern"}'), USED, Finish("tool_calls")]
    ),
    "signed thoughts": Scenario(
        [ReasoningDelta("Hm."), ReasoningDelta("", "c2lnbmVk"), TextDelta("Cold."), USED, Finish("stop")]
    ),
    "long arguments": Scenario([*call(0, LONG), USED, Finish("tool_calls")]),
    "a refusal": Scenario([RefusalDelta("I will "), RefusalDelta("not."), USED, Finish("stop")]),
    "the limit in the text": Scenario([TextDelta("It is"), USED, Finish("length")], more={"max_tokens": 3}),
    "the limit in a call": Scenario(
        [
            ToolCallStart(0, "call_0", "weather"),
            ToolCallDelta(0, '{"city":"Be'),
            ToolCallIncomplete(0, '{"city":"Be'),
            USED,
            Finish("length"),
        ]
    ),
    "a stop string": Scenario([TextDelta("It is EN"), TextDelta("D or so."), Finish("stop")], more={"stop": ("END",)}),
    "a stop string of white space": Scenario(
        [TextDelta("a\n"), TextDelta("\nb"), Finish("stop")], more={"stop": ("\n\n",)}
    ),
    "a filtered answer": Scenario([TextDelta("It"), USED, Finish("content_filter")]),
    "a failure in the middle": Scenario([TextDelta("It is"), Failure(BackendUnavailableError("the engine ended"))]),
    "a failure before the first word": Scenario([Failure(BackendUnavailableError("the engine ended"))]),
    "an image": Scenario(
        [TextDelta("A dot."), USED, Finish("stop")], (v.Message("user", (v.Text("What is it?"), IMAGE)),)
    ),
    "a result": Scenario(
        [TextDelta("18."), USED, Finish("stop")], conversation_with(v.ToolResult("call_7", (v.Text("18 degrees"),)))
    ),
    "an image in a result": Scenario(
        [TextDelta("A dot."), USED, Finish("stop")], conversation_with(v.ToolResult("call_7", (v.Text("Seen:"), IMAGE)))
    ),
    "a result that is an error": Scenario(
        [TextDelta("Sorry."), USED, Finish("stop")],
        conversation_with(v.ToolResult("call_7", (v.Text("no such city"),), is_error=True)),
    ),
    "a result and a word": Scenario(
        [TextDelta("18."), USED, Finish("stop")],
        (*conversation_with(v.ToolResult("call_7", (v.Text("18"),))), said("And in °F?")),
    ),
}


ONE_CALL = SCENARIOS["one call"].events


class ScriptedEvents:
    """The script of the last backend: emits the events that a test sets, and records the requests."""

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.asked: list[v.Request] = []

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        self.asked.append(request)
        if not isinstance(self.events[0], Failure):
            yield Start("", "", 0)
        stop = StopStrings(request.stop)  # every backend applies stop strings
        for event in stop.feed(self.events):
            yield event
        if stop.found:
            yield Finish("stop_sequence", stop.found)


@dataclass
class Chain:
    front: str
    behind: str
    url: str
    played: ScriptedEvents


@pytest.fixture(params=dialects.names())
def front(request: pytest.FixtureRequest) -> str:
    """The API of the client."""
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=dialects.names())
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, str, ScriptedEvents]]:
    """The API of the upstream server, the URL of the gateway in front of it, and the script."""
    played = ScriptedEvents()
    async with served(played) as far, near(HttpConfig(url=f"{far.url}/v1", api=request.param)) as url:
        yield request.param, url, played


@pytest.fixture
def chain(front: str, upstream: tuple[str, str, ScriptedEvents]) -> Chain:
    return Chain(front, *upstream)


@contextlib.asynccontextmanager
async def near(config: HttpConfig) -> AsyncIterator[str]:
    """The URL of the gateway that the client asks."""
    if worker_gateway.is_tested():
        async with worker_gateway.worker_gateway(replace(config, max_retries=0)) as gateway:
            yield gateway.url
    else:
        async with serving(Gateway([HttpBackend("far", config, {})])) as (_, url):
            yield url


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that failed is asked again at once."""
    monkeypatch.setattr(retry, "sleep", lambda delay_s: asyncio.sleep(0))


async def test_request_and_response_pass_through_every_api_pair(chain: Chain, subtests: pytest.Subtests) -> None:
    await check_each_async(subtests, product(SCENARIOS, (False, True)), partial(check_passes_through, chain), title)


def title(case: tuple[str, bool]) -> str:
    name, stream = case
    return f"{name}, {'streamed' if stream else 'whole'}"


async def check_passes_through(chain: Chain, case: tuple[str, bool]) -> None:
    name, stream = case
    scenario = SCENARIOS[name]
    chain.played.events, chain.played.asked = scenario.events, []
    request = v.Request("m", scenario.messages, TOOLS, stream=stream, stream_usage=stream, **scenario.more)
    wanted, failed = _expected(scenario.events, request.stop)

    reply, error = await _ask(chain, request)

    if failed:
        assert "the engine ended" in str(error), "a failure must never look like an answer"
        return
    assert error is None
    via = [chain.behind, chain.front]
    assert _reply_content(reply) == _reply_content(_with_losses(wanted, _apis_with_losses(via, request), stream))
    if USED in scenario.events:  # otherwise the usage is an estimate
        assert reply.usage == wanted.usage
    (asked,) = chain.played.asked
    assert _conversation_content(asked.messages) == _conversation_content(_known(scenario.messages, via))
    assert [(t.name, t.description, json.loads(t.parameters)) for t in asked.tools] == [
        (t.name, t.description, json.loads(t.parameters)) for t in TOOLS
    ]
    assert asked.stream == stream or request.stop


OWN_IDS = ("call_Ab1", "toolu_01Ab", "functions.weather:0", "chatcmpl-tool-0a", "9", "fc_1|x")


async def test_call_ids_are_restored_for_the_upstream_server(chain: Chain, subtests: pytest.Subtests) -> None:
    """Clients accept the ids of any API; OpenClaw removes punctuation from the ids of other APIs."""
    await check_each_async(subtests, product(OWN_IDS, (False, True)), partial(check_id_is_restored, chain), title)


async def check_id_is_restored(chain: Chain, case: tuple[str, bool]) -> None:
    id, stream = case
    chain.played.events = [replace(event, id=id) if isinstance(event, ToolCallStart) else event for event in ONE_CALL]
    request = v.Request("m", (said("Weather?"),), TOOLS, stream=stream)
    reply, _ = await _ask(chain, request)
    (made,) = (part for part in reply.parts if isinstance(part, v.ToolCall))
    assert CALL_ID.fullmatch(made.id)
    chain.played.events = [TextDelta("18."), Finish("stop")]
    for sent in (made.id, re.sub("[^a-zA-Z0-9]", "", made.id)):
        chain.played.asked = []
        turn = (
            v.Message("assistant", (replace(made, id=sent),)),
            v.Message("tool", (v.ToolResult(sent, (v.Text("18"),)),)),
        )
        await _ask(chain, replace(request, messages=(*request.messages, *turn)))
        parts = [part for message in chain.played.asked[0].messages for part in message.parts]
        got = [
            part.id if isinstance(part, v.ToolCall) else part.call_id for part in parts if not isinstance(part, v.Text)
        ]  # type: ignore[union-attr]
        own = id if chain.behind != "anthropic_messages" else valid_call_id(id)
        assert got == [own if sent == made.id or valid_call_id(id) != id else sent] * 2


async def _ask(chain: Chain, request: v.Request) -> tuple[v.Reply, DragomanError | None]:
    """The response as the front dialect's reader parses it."""
    dialect = dialects.get(chain.front)
    collector = Collector()
    reader = dialect.reader(request, ExchangeContext("1", 0, iter("abcdefghij").__next__))
    outgoing = dialect.write_request(request, "m")
    stop = StopStrings(outgoing.stop_locally)
    async with (
        http_client() as client,
        client.stream("POST", chain.url + dialect.path, content=outgoing.body) as response,
    ):
        streamed = (request.stream or outgoing.stop_locally) and response.status_code == 200
        kind = "text/event-stream" if streamed else "application/json"
        assert response.headers["content-type"].startswith(kind)
        async for piece in response.aiter_bytes():
            for event in stop.feed(reader.feed(piece)):
                collector.feed(event)
    for event in stop.feed(reader.close()) if not stop.found else [Finish("stop_sequence", stop.found)]:
        collector.feed(event)
    return collector.reply(), collector.error


def _expected(events: Iterable[AnyEvent], stops: tuple[str, ...]) -> tuple[v.Reply, bool]:
    collector, stop = Collector(), StopStrings(stops)
    ended = [Finish("stop_sequence", stops[0])] if stops else []
    for event in [Start("1", "m", 0), *stop.feed(events), *ended]:
        collector.feed(event)
    return collector.reply(), collector.error is not None


# What each API cannot represent


def _merged(parts: Iterable[v.Part], kinds: tuple[type, ...]) -> tuple[v.Part, ...]:
    """Joins the texts of each kind, in the order of `kinds`: the API's message has one field for each kind."""
    found = list(parts)
    said = [[p for p in found if isinstance(p, kind)] for kind in kinds]
    joined = [
        [type(ps[0])("".join(p.text for p in ps))] if ps and kinds[n] is not v.ToolCall else ps
        for n, ps in enumerate(said)
    ]  # type: ignore[attr-defined]
    return tuple(part for parts in joined for part in parts)


def _chat_reply(reply: v.Reply, stream: bool) -> v.Reply:
    """No signatures; a complete message contains reasoning, text, refusal and calls, each once."""
    parts = [replace(p, signature="", redacted="") if isinstance(p, v.Reasoning) else p for p in reply.parts]
    if not stream:
        parts = list(_merged(parts, (v.Reasoning, v.Text, v.Refusal, v.ToolCall)))
    finish = "stop" if reply.finish_reason == "stop_sequence" else reply.finish_reason
    return replace(reply, parts=tuple(parts), finish_reason=finish, stop_sequence="")


def _messages_reply(reply: v.Reply, stream: bool) -> v.Reply:
    """A refusal is text and the finish reason."""
    refused = any(isinstance(p, v.Refusal) for p in reply.parts)
    parts = tuple(v.Text(p.text) if isinstance(p, v.Refusal) else p for p in reply.parts)
    return replace(reply, parts=parts, finish_reason="content_filter" if refused else reply.finish_reason)


def _responses_reply(reply: v.Reply, stream: bool) -> v.Reply:
    """No stop strings."""
    return replace(
        reply, finish_reason="stop" if reply.finish_reason == "stop_sequence" else reply.finish_reason, stop_sequence=""
    )


REPLY_LOSSES: dict[str, Callable[[v.Reply, bool], v.Reply]] = {
    "openai_chat": _chat_reply,
    "anthropic_messages": _messages_reply,
    "openai_responses": _responses_reply,
}


def _with_losses(reply: v.Reply, via: list[str], stream: bool) -> v.Reply:
    for name in via:
        reply = REPLY_LOSSES[name](reply, stream)
    return reply


def _apis_with_losses(via: list[str], request: v.Request) -> list[str]:
    """The APIs whose limits apply to the finish reason: none if the gateway searches for the stop string itself."""
    watched = dialects.get(via[-1]).write_request(request, "m").stop_locally
    return via if not request.stop else [] if watched else via[-1:]


def _reply_content(reply: v.Reply) -> list[object]:
    """The parts of a reply in order, and how it ended."""
    said: list[object] = [p if not isinstance(p, v.ToolCall) else (p.id, p.name, p.arguments) for p in reply.parts]
    return [*said, reply.finish_reason, reply.stop_sequence]


def _known(messages: tuple[v.Message, ...], via: list[str]) -> tuple[v.Message, ...]:
    return messages


def _conversation_content(messages: Iterable[v.Message]) -> list[object]:
    """The content of a conversation, sorted, independent of the message that contains it."""
    found: list[object] = []
    for message in messages:
        for part in message.parts:
            match part:
                case v.Text(text):
                    found.append((message.role, text))
                case v.Image(source):
                    found.append(source)
                case v.ToolCall(id, name, arguments):
                    found.append((id, name, json.loads(arguments)))
                case v.ToolResult(id, parts):
                    text = "".join(p.text for p in parts if isinstance(p, v.Text)).removeprefix("Error: ")
                    found += [(id, text), *(p.source for p in parts if isinstance(p, v.Image))]
    return sorted(found, key=repr)
