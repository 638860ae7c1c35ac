"""The response store: retention, limits, and how a request that continues a response is resolved."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import BackendUnavailableError, UnknownResponseError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    VendorBlock,
)
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.storage.response_store import OBJECT_BYTES, ResolvedRequest, ResponseStore
from dragoman.state.memory_store import MemoryStateStore
from dragoman.state.sqlite_store import SqliteStateStore
from support.events import all_events
from support.gateway import DEADLINE_S
from support.scripted_backend import Script, Scripted, plain, served, serving


def user(text: str) -> v.Message:
    return v.Message("user", (v.Text(text),))


def model(text: str) -> v.Message:
    return v.Message("assistant", (v.Text(text),))


def asked(text: str, before: str = "", instructions: str = "") -> v.Request:
    own = (v.Message("system", (v.Text(instructions),)),) if instructions else ()
    previous = v.PreviousResponseRef(before, path="$.previous") if before else None
    return v.Request("m", (*own, user(text)), previous_response=previous, instruction_count=len(own), store=True)


def request_with_parts(*parts: v.Part) -> v.Request:
    return v.Request("m", (user("hi"), v.Message("assistant", parts)))


MakeStore = Callable[..., ResponseStore]


@contextlib.contextmanager
def making(kind: str, folder: Path) -> Iterator[MakeStore]:
    """Makes stores of this kind, each empty, and closes them at the end."""
    with contextlib.ExitStack() as stack:

        def make(now_s: Callable[[], float] = time.time, **settings: Any) -> ResponseStore:
            if kind == "memory":
                return ResponseStore(MemoryStateStore(now_s), **settings)
            file = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))) / "responses.sqlite"
            store = ResponseStore(SqliteStateStore(file, now_s), **settings)
            stack.callback(store.close)
            return store

        yield make


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    with making(request.param, tmp_path) as make:
        yield make


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def store_response(memory: ResponseStore, id: str, request: v.Request, *parts: v.Part) -> v.Request:
    """Stores a response to the request, and returns the resolved request."""
    recalled = memory.resolve(request)
    memory.add(recalled, v.Reply(id, "m", 0, parts or (v.Text(f"answer {id}"),), "stop"))
    return recalled.request


def test_continued_conversation_drops_earlier_instructions(make_store: MakeStore) -> None:
    memory = make_store()
    store_response(memory, "1", asked("one", instructions="Be brief."))
    store_response(memory, "2", asked("two", "1"))
    whole = memory.resolve(asked("three", "2", instructions="Be long.")).request
    assert whole.previous_response is None
    system = v.Message("system", (v.Text("Be long."),))
    assert whole.messages == (system, user("one"), model("answer 1"), user("two"), model("answer 2"), user("three"))
    fork = memory.resolve(asked("other", "1")).request
    assert fork.messages == (user("one"), model("answer 1"), user("other"))


def test_long_conversation_is_read_in_few_steps(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = make_store()
    for number in range(100):
        store_response(memory, str(number), asked(f"question {number}", str(number - 1) if number else ""))
    reads: list[int] = []
    for kind in (MemoryStateStore, SqliteStateStore):
        read = kind.get_many
        monkeypatch.setattr(kind, "get_many", lambda *args, read=read: (reads.append(len(args[2])), read(*args))[1])
    messages = memory.resolve(asked("last", "99")).request.messages
    assert [part.text for m in messages for part in m.parts if isinstance(part, v.Text)] == [
        *(text for number in range(100) for text in (f"question {number}", f"answer {number}")),
        "last",
    ]
    assert reads == [1, 32, 32, 32, 3]


def test_conversation_with_a_deleted_response_cannot_be_continued(make_store: MakeStore) -> None:
    memory = make_store()
    for number in range(3):
        store_response(memory, str(number), asked("more", str(number - 1) if number else ""))
    assert memory.delete("1")
    assert [_is_kept(memory, id) for id in "012"] == [True, False, False]


def test_unknown_previous_response_is_rejected(make_store: MakeStore) -> None:
    with pytest.raises(UnknownResponseError, match=r"answer 'x' not found.* - at \$\.previous"):
        make_store().resolve(asked("one", "x"))


def test_part_reference_is_replaced_by_stored_part(make_store: MakeStore) -> None:
    memory, call = make_store(), v.ToolCall("c", "f", "{}")
    store_response(memory, "1", asked("one"), v.Reasoning("hm", "sig"), call)
    request, _, _, warnings, _ = memory.resolve(
        request_with_parts(v.PreviousResponseRef("1", 0), v.Text("x"), v.PreviousResponseRef("1", 1))
    )
    assert request.messages[1].parts == (v.Reasoning("hm", "sig"), v.Text("x"), call)
    assert warnings == ()


@pytest.mark.parametrize(
    "named",
    [
        v.PreviousResponseRef("2", 0, "$.p"),
        v.PreviousResponseRef("1", 1, "$.p"),
        v.PreviousResponseRef("1", None, "$.p"),
    ],
)
def test_unknown_part_reference_is_dropped_with_warning(make_store: MakeStore, named: v.PreviousResponseRef) -> None:
    memory = make_store()
    store_response(memory, "1", asked("one"))
    request, _, _, warnings, _ = memory.resolve(request_with_parts(v.Text("x"), named))
    assert request.messages == (user("hi"), model("x"))
    assert warnings == (Notice("unknown_reference", "what $.p names is not stored here; it was dropped", "", "$.p"),)
    assert memory.resolve(request_with_parts(named)).request.messages == (user("hi"),)
    with pytest.raises(UnknownResponseError, match="none of the referenced responses"):
        memory.resolve(v.Request("m", (v.Message("assistant", (named,)),)))


def test_truncated_call_is_not_stored(make_store: MakeStore) -> None:
    memory = make_store()
    store_response(memory, "1", asked("one"), v.Text("Let me"), v.ToolCall("c", "f", '{"a'))
    assert memory.resolve(asked("go on", "1")).request.messages == (user("one"), model("Let me"), user("go on"))
    assert [w.code for w in memory.resolve(request_with_parts(v.PreviousResponseRef("1", 1))).warnings] == [
        "unknown_reference"
    ]


def test_referenced_parts_are_stored_with_referencing_response(make_store: MakeStore) -> None:
    memory = make_store(max_responses=1)
    store_response(memory, "1", asked("one"))
    store_response(memory, "2", msgspec.structs.replace(request_with_parts(v.PreviousResponseRef("1", 0)), store=True))
    assert memory.resolve(asked("three", "2")).request.messages[1] == model("answer 1")


def test_least_recently_used_response_is_evicted_first(make_store: MakeStore) -> None:
    memory = make_store(max_responses=2)
    for id in "12":
        store_response(memory, id, asked(id))
    store_response(memory, "3", asked("more", "1"))
    assert len(memory.resolve(asked("more", "3")).request.messages) == 5
    with pytest.raises(UnknownResponseError):
        memory.resolve(asked("more", "2"))


def test_expired_response_is_evicted_unless_in_use(make_store: MakeStore) -> None:
    clock = Clock()
    memory = make_store(ttl_s=10, now_s=clock)
    store_response(memory, "1", asked("one"))
    store_response(memory, "2", asked("two", "1"))
    store_response(memory, "other", asked("other"))
    clock.now_s = 9
    memory.resolve(asked("more", "2"))
    clock.now_s = 18
    assert len(memory.resolve(asked("more", "2")).request.messages) == 5
    assert len(memory) == 2


def test_oversized_response_does_not_evict_others(make_store: MakeStore) -> None:
    memory = make_store(max_bytes=3000)
    store_response(memory, "1", asked("one"))
    store_response(memory, "2", asked("x" * 4000))
    assert memory.resolve(asked("more", "1"))
    with pytest.raises(UnknownResponseError):
        memory.resolve(asked("more", "2"))


def test_store_with_limit_zero_stays_empty(make_store: MakeStore) -> None:
    memory = make_store(max_responses=0)
    store_response(memory, "1", asked("one"))
    assert (len(memory), memory.size_bytes) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 300), st.integers(0, 5)), max_size=40))
def test_store_limits_hold_and_stored_responses_stay_continuable(turns: list[tuple[int, int, int]]) -> None:
    """For any order of continued responses, and in both stores: the same responses are stored and can be continued."""
    stored = []
    for kind in ("memory", "sqlite"):
        with tempfile.TemporaryDirectory() as folder, making(kind, Path(folder)) as make:
            stored.append(check_limits(make, turns))
    assert stored[0] == stored[1]


def check_limits(make_store: MakeStore, turns: list[tuple[int, int, int]]) -> list[str]:
    clock = Clock()
    memory = make_store(max_responses=6, max_bytes=10_000, ttl_s=20, now_s=clock)
    known: list[str] = []
    for number, (before, size, wait_s) in enumerate(turns):
        clock.now_s += wait_s
        with contextlib.suppress(UnknownResponseError):
            store_response(memory, str(number), asked("x" * size, known[before] if before < len(known) else ""))
            known.append(str(number))
        assert len(memory) <= 6
        assert memory.size_bytes <= 10_000
    kept = [id for id in known if _is_kept(memory, id)]
    assert len(kept) == len(memory)
    assert all([memory.delete(id) for id in kept])
    assert (len(memory), memory.size_bytes) == (0, 0)
    return kept


def _is_kept(memory: ResponseStore, id: str) -> bool:
    try:
        return bool(memory.resolve(asked("more", id)))
    except UnknownResponseError:
        return False


# In the gateway


async def events_of(gateway: Gateway, request: v.Request, id: str = "1") -> list[AnyEvent]:
    numbers = itertools.count()
    async with contextlib.aclosing(
        gateway.generate(request, ExchangeContext(id, 1, lambda: str(next(numbers))))
    ) as events:
        return await all_events(events)


async def test_dropped_reference_notice_follows_start_event() -> None:
    events = await events_of(Gateway([Scripted(plain)]), request_with_parts(v.PreviousResponseRef("x", 0)))
    assert [type(e) for e in events[:3]] == [Start, Notice, TextDelta]


async def failing(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hel")
    yield Failure(BackendUnavailableError("died"))


async def test_incomplete_response_is_not_stored() -> None:
    gateway = Gateway([Scripted(failing)])
    await events_of(gateway, asked("one"))
    assert len(gateway.response_store) == 0
    gateway = Gateway([Scripted(plain)])
    async with contextlib.aclosing(gateway.generate(asked("one"), ExchangeContext("1", 1, str))) as events:
        assert isinstance((await anext(events))[0], Start)
    assert len(gateway.response_store) == 0


@pytest.mark.parametrize("api", [name for name in dialects.names() if name != "openai_responses"])
async def test_only_responses_api_is_stored(api: str) -> None:
    body = b'{"model":"m","max_tokens":9,"store":true,"messages":[{"role":"user","content":"hi"}]}'
    gateway = Gateway([Scripted(plain)])
    await events_of(gateway, dialects.get(api).read_request(body))
    assert len(gateway.response_store) == 0


async def with_vendor_block(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield VendorBlock("anthropic_messages", "server_tool_use", '{"type":"server_tool_use"}')
    yield TextDelta("Hello")
    yield Finish("stop")


async def test_part_numbers_match_items_sent_to_client() -> None:
    gateway = Gateway([Scripted(with_vendor_block)])
    body = b'{"model":"m","input":"hi"}'
    await events_of(gateway, dialects.get("openai_responses").read_request(body))
    assert gateway.response_store.resolve(request_with_parts(v.PreviousResponseRef("1", 0))).request.messages[
        1
    ] == model("Hello")


def test_stored_custom_and_namespace_calls_keep_their_type(make_store: MakeStore) -> None:
    """A stored response contains only their names."""
    api, memory = dialects.get("openai_responses"), make_store()
    inside = [{"type": "function", "name": "find"}]
    tools = [{"type": "custom", "name": "shell"}, {"type": "namespace", "name": "crm", "tools": inside}]
    first = api.read_request(json.dumps({"model": "m", "input": "hi", "tools": tools}))
    store_response(memory, "1", first, v.ToolCall("a", "shell", '{"input":"ls"}'), v.ToolCall("b", "crm__find", "{}"))
    results = [
        {"type": "custom_tool_call_output", "call_id": "a", "output": "x"},
        {"type": "function_call_output", "call_id": "b", "output": "y"},
    ]
    second = {"model": "m", "previous_response_id": "resp_1", "input": results, "tools": tools}
    body = json.loads(api.write_request(memory.resolve(api.read_request(json.dumps(second))).request, "m").body)
    assert body["input"] == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "custom_tool_call", "call_id": "a", "name": "shell", "input": "ls"},
        {"type": "function_call", "call_id": "b", "name": "find", "namespace": "crm", "arguments": "{}"},
        *results,
    ]


# With the vendor's SDK

WEATHER: openai.types.responses.FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": None,
}
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def calling(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """Returns text and a call; once there is a tool result, the whole conversation as the model gets it."""
    yield Start("", "", 0)
    results = [p for m in request.messages for p in m.parts if isinstance(p, v.ToolResult)]
    if results:
        yield TextDelta(" | ".join(f"{m.role}: {' '.join(map(said, m.parts))}" for m in request.messages))
    else:
        yield TextDelta("Let me look.")
        yield ToolCallStart(0, "call_0", "weather")
        yield ToolCallDelta(0, "{}")
        yield ToolCallEnd(0)
    yield Finish("stop")


def said(part: v.Part) -> str:
    match part:
        case v.Text(text):
            return text
        case v.ToolCall(id, name):
            return f"{name}={id}"
        case v.ToolResult(call_id, parts):
            return f"{call_id}: {' '.join(map(said, parts))}"
    return repr(part)


TOLD = "user: Weather? | assistant: Let me look. weather=call_0 | tool: call_0: 18 degrees"


@contextlib.asynccontextmanager
async def client(script: Script) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    async with (
        served(script) as s,
        openai.AsyncOpenAI(api_key="k", base_url=f"{s.url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
    ):
        yield sdk


async def ask(sdk: openai.AsyncOpenAI, stream: bool, **settings: object) -> openai.types.responses.Response:
    settings = {"model": "m", "tools": [WEATHER], **settings}
    if not stream:
        return await sdk.responses.create(**settings)  # type: ignore[call-overload,no-any-return]
    async with sdk.responses.stream(**settings) as events:  # type: ignore[arg-type]
        return await events.get_final_response()


@STREAMED
async def test_response_chain_with_tool_outputs_keeps_conversation(stream: bool) -> None:
    result = {"type": "function_call_output", "call_id": "call_0", "output": "18 degrees"}
    async with client(calling) as sdk:
        first = await ask(sdk, stream, input="Weather?", instructions="Be brief.")
        second = await ask(sdk, stream, input=[result], previous_response_id=first.id)
        assert second.output_text == TOLD
        assert second.previous_response_id == first.id
        third = await ask(sdk, stream, input="And?", previous_response_id=second.id)
        assert third.output_text == f"{TOLD} | assistant: {TOLD} | user: And?"


@STREAMED
async def test_item_references_of_vercel_sdk_are_resolved(stream: bool) -> None:
    """By default it references the message of the first response, and repeats the call."""
    async with client(calling) as sdk:
        first = await ask(sdk, stream, input="Weather?")
        message, call = first.output
        again = [
            {"role": "user", "content": "Weather?"},
            {"type": "item_reference", "id": message.id},
            call.to_dict(),
            {"type": "function_call_output", "call_id": "call_0", "output": "18 degrees"},
        ]
        assert (await ask(sdk, stream, input=again, store=False)).output_text == TOLD
        again[1]["id"] = "msg_of_another_day"
        told = await ask(sdk, stream, input=again)
        assert told.output_text == TOLD.replace("Let me look. ", "")
        again[1:3] = [{"type": "item_reference", "id": item.id} for item in first.output]
        assert (await ask(sdk, stream, input=again)).output_text == TOLD


@STREAMED
async def test_unstored_response_cannot_be_continued(stream: bool) -> None:
    async with client(calling) as sdk:
        first = await ask(sdk, stream, input="Weather?", store=False)
        assert first.to_dict()["store"] is False
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(sdk, stream, input="And?", previous_response_id=first.id)
    assert (refused.value.code, refused.value.param) == ("previous_response_not_found", "previous_response_id")


async def echoes_user_texts(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    """Returns the user texts that the model gets, after other tasks had time to run."""
    yield Start("", "", 0)
    await asyncio.sleep(0)
    yield TextDelta("+".join(said(part) for m in request.messages if m.role == "user" for part in m.parts))
    await asyncio.sleep(0)
    yield Finish("stop")


async def test_concurrent_conversations_stay_separate() -> None:
    async def conversation(sdk: openai.AsyncOpenAI, name: str) -> str:
        before = None
        for turn in range(4):
            asked = f"{name}{turn}"
            answer = await ask(sdk, stream=turn % 2 == 0, input=asked, tools=[], previous_response_id=before)
            before = answer.id
        return answer.output_text

    async with client(echoes_user_texts) as sdk:
        names = [f"c{n}-" for n in range(20)]
        told = await asyncio.gather(*(conversation(sdk, name) for name in names))
    assert told == ["+".join(f"{name}{turn}" for turn in range(4)) for name in names]


async def test_upstream_gets_whole_conversation() -> None:
    """For each upstream API, none of which has access to the stored responses."""
    for api in dialects.names():
        async with served(calling) as behind:
            gateway = Gateway([HttpBackend("behind", HttpConfig(behind.url, api=api, models=("m",)), {})])
            async with (
                serving(gateway) as (_, url),
                openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0, timeout=DEADLINE_S) as sdk,
            ):
                result = {"type": "function_call_output", "call_id": "call_0", "output": "18 degrees"}
                first = await ask(sdk, True, input="Weather?")
                second = await ask(sdk, False, input=[result], previous_response_id=first.id)
                assert second.output_text.replace("user: call_0", "tool: call_0") == TOLD


async def cut_off(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta(f"{len(request.messages)}")
    yield ToolCallStart(0, "call_0", "weather")
    yield ToolCallDelta(0, '{"ci')
    yield ToolCallIncomplete(0, '{"ci')
    yield Finish("length")


async def test_truncated_response_is_continued_without_truncated_call() -> None:
    async with client(cut_off) as sdk:
        first = await ask(sdk, False, input="Weather?")
        assert first.status == "incomplete"
        assert [item.type for item in first.output] == ["message"]
        assert (await ask(sdk, False, input="Go on.", previous_response_id=first.id)).output_text[0] == "3"


def test_stored_response_does_not_reference_request_body(make_store: MakeStore) -> None:
    """Unparsed JSON is a view of the request body, so storing the view would keep the body in memory."""
    message = {"role": "user", "content": "hi", "status": "completed"}
    body = json.dumps({"model": "m", "instructions": "x" * 100_000, "input": [message]}).encode()
    memory, before = make_store(), sys.getrefcount(body)
    memory.add(
        memory.resolve(dialects.get("openai_responses").read_request(body)),
        v.Reply("1", "m", 0, (v.Text("Hello"),), "stop"),
    )
    assert sys.getrefcount(body) == before
    goes_on = v.Request("m", (), previous_response=v.PreviousResponseRef("1", 0))
    kept = memory.resolve(goes_on).request.messages[0]
    assert {name: bytes(raw) for name, raw in kept.extra.items()} == {"status": b'"completed"'}


def test_small_messages_count_with_object_overhead(make_store: MakeStore) -> None:
    memory = make_store(max_bytes=10 * OBJECT_BYTES)
    said = tuple(v.Message("user", (v.Text("a"),)) for _ in range(6))
    memory.add(
        ResolvedRequest(v.Request("m", said), input_messages=said), v.Reply("one", "m", 0, (v.Text("b"),), "stop")
    )
    assert len(memory) == 0
