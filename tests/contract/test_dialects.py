"""Every case of every dialect, and how the vendors' own SDKs read the bytes.

A case file holds blocks of

    # title
    kind                     request | request + | count | events | events, usage asked | events, custom p
                             | events, functions | whole | whole, functions | error
    input
    ---
    expected

`request` is a body and the request that is read from it, or the error; `request +` contains members that are added to
the smallest body, and shows only what they change. `count` is a body whose tokens are counted: the request, then the
response. `events` become a stream, `whole` one body, both exactly as they are sent (the constant head of a chunk is
written `…`). `error` is an error's arguments, its status and its body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pydantic
import pytest

from dragoman import dialects
from dragoman.core import errors
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.wire.dialect import Dialect
from support.dialect_cases import (
    CASES,
    SMALLEST,
    STREAMS,
    Case,
    each,
    error,
    given,
    of,
    reply_of,
    shown,
    stream,
    whole,
    words,
)

APIS_WITH_EVENT_NAMES = ("anthropic_messages", "openai_responses")
"""APIs whose events have names."""
CHUNK_HEAD = '"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m"'
REQUEST_ECHO = re.compile(r'"background":false,.*?"top_p":null')


def read(api: Dialect, body: str) -> list[str]:
    try:
        return shown(api.read_request(body.encode("utf-8", "surrogateescape")))
    except errors.RequestError as e:
        return [f"{type(e).__name__}: {e.message}"]


def got(case: Case) -> str:
    match case.kind:
        case "request":
            return "\n".join(read(case.api, case.text))
        case "request +":
            smallest = SMALLEST[case.dialect]
            known = read(case.api, smallest + "}")
            return "\n".join(x for x in read(case.api, f"{smallest},{case.text}}}") if x not in known)
        case "count":
            return counted(case)
        case "whole" | "whole, custom p" | "whole, functions":
            return REQUEST_ECHO.sub("…", case.api.write_reply(reply_of(case), case.request).decode())
        case "error":
            kind, given = words(case.text)
            made = error(kind, given)
            return f"{case.api.status(made)}\n{case.api.write_error(made).decode()}"
    written = REQUEST_ECHO.sub("…", stream(case).decode().replace(CHUNK_HEAD, "…"))
    return re.sub(r"\n\n+", "\n", written).strip("\n")


def counted(case: Case) -> str:
    counting = case.api.token_counting
    assert counting is not None
    try:
        answer = counting.write_count(31, None).decode()
        return "\n".join([*shown(counting.read_request(case.text)), f"answer {answer}"])
    except errors.RequestError as e:
        return f"{type(e).__name__}: {e.message}"


def test_each_dialect_has_cases() -> None:
    assert {case.dialect for case in CASES} == set(dialects.names())


@each(CASES)
def test_case_has_expected_output(case: Case) -> None:
    assert got(case) == case.expected


@each(STREAMS)
def test_stream_frames_are_named_and_contain_json(case: Case) -> None:
    """Some APIs name their events, others end a stream with `[DONE]`; the data of all is JSON."""
    frames = stream(case).decode().split("\n\n")[:-1]
    if case.dialect == "openai_chat":
        assert frames.pop() == "data: [DONE]"
    for frame in frames:
        name, _, data = frame.rpartition("\n")
        said = json.loads(data.removeprefix("data: "))
        assert name == (f"event: {said['type']}" if case.dialect in APIS_WITH_EVENT_NAMES else "")


def test_writer_rejects_invalid_event_order() -> None:
    for name in dialects.names():
        with pytest.raises(ev.EventOrderError):
            dialects.get(name).writer(v.Request("m", ())).feed(ev.TextDelta("x"))


def test_config_error_has_status_400() -> None:
    for name in dialects.names():
        assert dialects.get(name).status(errors.ConfigError("x")) == 400


def test_redacted_reasoning_is_written_as_redacted_thinking() -> None:
    reply = v.Reply("1", "m", 7, (v.Reasoning("", redacted="xyz"), v.UnknownPart("x", msgspec.Raw(b"{}"))), "stop")
    body = json.loads(dialects.get("anthropic_messages").write_reply(reply, v.Request("m", ())))
    assert body["content"] == [{"type": "redacted_thinking", "data": "xyz"}]


# How the vendors' SDKs read it

USER = {"role": "user", "content": "hi"}


@contextmanager
def openai_client(body: bytes, status: int = 200) -> Iterator[openai.OpenAI]:
    with (
        httpx2.Client(transport=transport_for(body, status)) as http,
        openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0) as client,
    ):
        yield client


@contextmanager
def anthropic_client(body: bytes, status: int = 200) -> Iterator[anthropic.Anthropic]:
    with (
        httpx2.Client(transport=transport_for(body, status)) as http,
        anthropic.Anthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0) as client,
    ):
        yield client


def transport_for(body: bytes, status: int) -> httpx2.MockTransport:
    kind = "application/json" if body.startswith(b"{") else "text/event-stream"
    return httpx2.MockTransport(lambda _: httpx2.Response(status, headers={"content-type": kind}, content=body))


def summary(completion: openai.types.chat.ChatCompletion) -> dict[str, object]:
    message = completion.choices[0].message
    calls = [(c.id, c.type, *given(c)) for c in message.tool_calls or ()]
    thoughts = getattr(message, "reasoning_content", None)
    return {
        "id": completion.id,
        "said": (message.role, message.content or None, message.refusal, thoughts, calls),
        "finish": completion.choices[0].finish_reason,
    }


@each(of("openai_chat"))
def test_openai_sdk_reads_stream_like_complete_response(case: Case) -> None:
    with openai_client(whole(case)) as client:
        expected = client.chat.completions.create(model="m", messages=[USER])
    with openai_client(stream(case)) as client, client.chat.completions.stream(model="m", messages=[USER]) as events:
        for _ in events:
            pass
        streamed = events.current_completion_snapshot
    assert summary(streamed) == summary(expected)
    if case.request.stream_usage:
        assert streamed.usage == expected.usage


@each(of("openai_chat"))
def test_openai_sdk_reads_raw_chunks(case: Case) -> None:
    with openai_client(stream(case)) as client:
        chunks = list(client.chat.completions.create(model="m", messages=[USER], stream=True))
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert deltas[0].role == "assistant"
    assert all((c.id, c.object, c.created, c.model) == ("chatcmpl-1", "chat.completion.chunk", 7, "m") for c in chunks)
    called = [p.name for p in reply_of(case).parts if isinstance(p, v.ToolCall)]
    if "functions" in case.kind:
        assert [d.function_call.name for d in deltas if d.function_call and d.function_call.name] == called[:1]
    else:
        assert [name for d in deltas for call in d.tool_calls or () if (name := given(call)[0])] == called


def test_openai_sdk_parses_parallel_calls_and_usage() -> None:
    case = next(c for c in of("openai_chat") if c.title == "two calls")
    usage = ev.UsageUpdate(v.Usage(10, 5, 4, 2))
    body = b"".join(map(dialects.get("openai_chat").writer(v.Request("m", (), stream_usage=True)).feed, [
        *case.events()[:-1], usage, case.events()[-1]
    ]))  # fmt: skip
    with openai_client(body) as client, client.chat.completions.stream(model="m", messages=[USER]) as events:
        done = [e for e in events if e.type == "tool_calls.function.arguments.done"]
        final = events.get_final_completion()
    assert [(e.index, e.name, e.arguments) for e in done] == [(0, "f", "{}"), (1, "g", '{"n":1.10}')]
    assert final.usage
    assert final.usage.prompt_tokens_details
    assert (final.usage.total_tokens, final.usage.prompt_tokens_details.cached_tokens) == (15, 4)


@each(of("openai_chat", failed=True))
def test_openai_sdk_raises_on_failed_stream(case: Case) -> None:
    failure = case.events()[-1]
    assert isinstance(failure, ev.Failure)
    with openai_client(stream(case)) as client, pytest.raises(openai.APIError, match=failure.error.message):
        list(client.chat.completions.create(model="m", messages=[USER], stream=True))


# OpenAI Responses


@cache
def response_event() -> pydantic.TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return pydantic.TypeAdapter(ResponseStreamEvent)


@each([c for c in STREAMS if c.dialect == "openai_responses"])
def test_responses_event_matches_openai_type(case: Case) -> None:
    for number, frame in enumerate(stream(case).decode().split("\n\n")[:-1]):
        data = json.loads(frame.partition("\ndata: ")[2])
        event = response_event().validate_python(data)
        assert (event.type, event.sequence_number) == (data["type"], number)


@each(of("openai_responses"))
def test_openai_sdk_reads_responses_stream_like_complete_response(case: Case) -> None:
    from openai.types.responses import Response

    with openai_client(whole(case)) as client:
        expected = client.responses.create(model="m", input="hi")
    with openai_client(stream(case)) as client, client.responses.stream(model="m", input="hi") as events:
        last = list(events)[-1]
        if last.type == "response.completed":
            assert events.get_final_response().output_text == expected.output_text
    assert last.type in ("response.completed", "response.incomplete")
    assert without_parsed(last.response.to_dict()) == expected.to_dict()
    Response.model_validate(expected.to_dict())


def without_parsed(value: Any) -> Any:
    """The value without the members that the SDK's helper adds."""
    if isinstance(value, list):
        return [without_parsed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {k: without_parsed(x) for k, x in value.items() if k not in ("parsed", "parsed_arguments")}


@each(of("openai_responses"))
def test_response_deltas_join_to_its_items(case: Case) -> None:
    with openai_client(stream(case)) as client:
        sent = list(client.responses.create(model="m", input="hi", stream=True))
    words: dict[str, str] = {}
    done = {e.item.id: e.item for e in sent if e.type == "response.output_item.done"}
    for e in sent:
        if e.type.endswith(".delta"):
            words[e.item_id] = words.get(e.item_id, "") + e.delta  # type: ignore[union-attr]
    for item in done.values():
        assert words.get(item.id or "", "") == text_of_item(item)
    final = sent[-1]
    assert final.type in ("response.completed", "response.incomplete")
    assert [item for item in final.response.output if item.id in done] == list(done.values())
    cut = [item for item in final.response.output if item.id not in done]
    assert bool(cut) == ("\nincomplete" in case.text)
    assert {item.status for item in cut} <= {"incomplete"}  # type: ignore[union-attr]


def text_of_item(item: openai.types.responses.ResponseOutputItem) -> str:
    match item.type:
        case "message":
            return "".join(c.text if c.type == "output_text" else c.refusal for c in item.content)
        case "reasoning":
            return "".join(s.text for s in item.summary)
        case "custom_tool_call":
            return item.input
        case "function_call":
            return item.arguments
    return ""


@each(of("openai_responses", failed=True))
def test_openai_sdk_reports_failed_response(case: Case) -> None:
    failure = case.events()[-1]
    assert isinstance(failure, ev.Failure)
    with openai_client(stream(case)) as client:
        if len(case.events()) == 1:
            with pytest.raises(openai.APIError, match=failure.error.message):
                list(client.responses.create(model="m", input="hi", stream=True))
            return
        sent = list(client.responses.create(model="m", input="hi", stream=True))
    assert sent[-1].type == "response.failed"
    assert sent[-1].response.error
    assert sent[-1].response.error.message == failure.error.message
    assert "response.output_item.done" not in [e.type for e in sent]


def test_response_echoes_request_settings() -> None:
    api = dialects.get("openai_responses")
    asked = {
        "tools": [
            {"type": "function", "name": "f", "description": "", "parameters": {"type": "object"}, "strict": True},
            {"type": "custom", "name": "p", "description": "x", "format": {"type": "text"}},
            {
                "type": "namespace",
                "name": "crm",
                "description": "Customers.",
                "tools": [
                    {"type": "function", "name": "f", "description": "", "parameters": {}, "strict": None},
                    {"type": "custom", "name": "p", "description": ""},
                ],
            },
            {"type": "web_search", "external_web_access": True},
        ],
        "tool_choice": {"type": "custom", "name": "p"},
        "parallel_tool_calls": False,
        "max_output_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"a": "b"},
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "truncation": "auto",
    }
    request = api.read_request(json.dumps({"model": "m", "input": "hi", **asked}))
    body = json.loads(api.write_reply(v.Reply("1", "m", 7, (), "stop"), request))
    assert {name: body[name] for name in asked} == asked
    assert (body["store"], body["background"], body["previous_response_id"]) == (True, False, None)
    for store, before in ((True, "resp_2"), (False, "resp_3")):
        more = {"model": "m", "input": "hi", "store": store, "previous_response_id": before}
        body = json.loads(api.write_reply(v.Reply("1", "m", 7, (), "stop"), api.read_request(json.dumps(more))))
        assert (body["store"], body["previous_response_id"]) == (store, before)


def test_namespaced_call_has_namespace_and_name() -> None:
    api = dialects.get("openai_responses")
    inside = [{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}]
    asked = {"model": "m", "input": "hi", "tools": [{"type": "namespace", "name": "crm", "tools": inside}]}
    request = api.read_request(json.dumps(asked))
    f, p = (tool.name for tool in request.tools)
    reply = v.Reply("1", "m", 7, (v.ToolCall("a", f, "{}"), v.ToolCall("b", p, '{"input":"x"}')), "tool_calls")
    said = json.loads(api.write_reply(reply, request))["output"]
    assert [(i["type"], i["namespace"], i["name"]) for i in said] == [
        ("function_call", "crm", "f"),
        ("custom_tool_call", "crm", "p"),
    ]
    again = api.read_request(json.dumps({**asked, "input": said})).messages[0].parts
    assert [part.name for part in again if isinstance(part, v.ToolCall)] == [f, p]


def test_redacted_reasoning_is_encrypted_content_and_unknown_is_dropped() -> None:
    reply = v.Reply("1", "m", 7, (v.Reasoning("", redacted="xyz"), v.UnknownPart("x", msgspec.Raw(b"{}"))), "stop")
    (item,) = json.loads(dialects.get("openai_responses").write_reply(reply, v.Request("m", ())))["output"]
    assert (item["encrypted_content"], item["summary"]) == ("redacted:xyz", [])


@each(of("anthropic_messages"))
def test_anthropic_sdk_reads_stream_like_complete_response(case: Case) -> None:
    with anthropic_client(whole(case)) as client:
        expected = client.messages.create(model="m", max_tokens=9, messages=[USER]).to_dict()
    with (
        anthropic_client(stream(case)) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[USER]) as s,
    ):
        streamed = s.get_final_message().to_dict()
    if "incomplete" in case.text:
        raw = json.loads(whole(case))["content"][-1].pop("input")["__unparsedToolInput"]["raw"]
        assert raw == '{"a":"b'
        assert expected["content"][-1].pop("input") != streamed["content"][-1].pop("input")
    assert {k: x for k, x in streamed.items() if x is not None} == {k: x for k, x in expected.items() if x is not None}


@each(of("anthropic_messages", failed=True))
def test_anthropic_sdk_raises_on_failed_stream(case: Case) -> None:
    with anthropic_client(stream(case)) as client, pytest.raises(anthropic.APIError):
        list(client.messages.create(model="m", max_tokens=9, messages=[USER], stream=True))


def test_anthropic_sdk_streams_reasoning_text_and_calls() -> None:
    script = (
        'start 3\nreasoning "hm" "sig"\ntext "a"\ncall 0 "toolu_a" "f"\narguments 0 "{\\"n\\":1}"\nend 0\nfinish "stop"'
    )
    case = Case("anthropic_messages", "", "events", script, "")
    with (
        anthropic_client(stream(case)) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[USER]) as s,
    ):
        kinds = [e.type for e in s]
    assert [k for k in kinds if k in ("thinking", "signature", "text", "input_json")] == [
        "thinking",
        "signature",
        "text",
        "input_json",
    ]


def test_sdks_raise_their_own_errors() -> None:
    chat, messages = dialects.get("openai_chat"), dialects.get("anthropic_messages")
    full = errors.ContextOverflowError(5, 4)
    with openai_client(chat.write_error(full), chat.status(full)) as client, pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="m", messages=[USER])
    assert e.value.code == "context_length_exceeded"
    died = errors.BackendUnavailableError("died")
    body, status = messages.write_error(died), messages.status(died)
    with anthropic_client(body, status) as client, pytest.raises(anthropic.APIStatusError) as raised:
        client.messages.create(model="m", max_tokens=9, messages=[USER])
    assert (raised.value.status_code, raised.value.type) == (529, "overloaded_error")


def test_anthropic_sdk_tool_runner_works_without_threads() -> None:
    """The runner sends `thread` first; as threads are not stored, it then sends the whole conversation."""
    messages = dialects.get("anthropic_messages")
    script = [
        'start\ncall 0 "toolu_a" "add"\narguments 0 "{\\"a\\":1,\\"b\\":2}"\nend 0\nfinish "stop"',
        'start\ntext "It is 3."\nfinish "stop"',
    ]
    seen: list[v.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        try:
            seen.append(messages.read_request(request.content))
        except errors.RequestError as e:
            return httpx2.Response(messages.status(e), content=messages.write_error(e))
        case = Case("anthropic_messages", "", "whole", script[len(seen) - 1], "")
        return httpx2.Response(200, content=whole(case), headers={"content-type": "application/json"})

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer)) as http,
        anthropic.Anthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0) as client,
    ):
        final = client.beta.messages.tool_runner(model="m", max_tokens=9, messages=[USER], tools=[add]).until_done()
    assert final.content[0].text == "It is 3."
    assert seen[1].messages[-1].parts == (v.ToolResult("toolu_a", (v.Text("3"),)),)
