"""Responses over HTTP from a scripted backend: silence, errors, large streams, slow clients."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.errors import BackendUnavailableError, QueueFullError
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
    UsageUpdate,
)
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from support.gateway import CHAT, DEADLINE_S, MESSAGES, http_request, shape_of
from support.http_client import http_client
from support.scripted_backend import Script, Scripted, body, eventually, plain, served, serving, silent_then_plain

PATHS = pytest.mark.parametrize("path", [CHAT, MESSAGES])
PINGS = {CHAT: b": ping\n\n", MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n'}
ENDS = {CHAT: b"data: [DONE]\n\n", MESSAGES: b'event: message_stop\ndata: {"type":"message_stop"}\n\n'}


def said(path: str, stream: bytes) -> str:
    """The text of a streamed response."""
    data = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    if path == CHAT:
        return "".join(c["delta"].get("content") or "" for d in data for c in d.get("choices", ()))
    return "".join(d["delta"]["text"] for d in data if d["type"] == "content_block_delta")


# Silence


@PATHS
async def test_pings_are_sent_before_first_event(path: str) -> None:
    async with served(silent_then_plain, max_status_delay_s=0.05, keepalive_interval_s=0.05) as s, s.client() as client:
        seen = b""
        async with client.stream("POST", path, json=body()) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                seen += piece
                if seen.count(PINGS[path]) == 3:
                    s.backend.go.set()
        assert seen.startswith(PINGS[path])
        assert said(path, seen) == "Hello"
        assert seen.endswith(ENDS[path])


@PATHS
async def test_pings_are_sent_in_mid_stream(path: str) -> None:
    async def pausing(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("Hello")
        await backend.go.wait()
        yield TextDelta(" again")
        yield Finish("stop")

    async with served(pausing, keepalive_interval_s=0.05) as s, s.client() as client:
        seen = b""
        async with client.stream("POST", path, json=body()) as answer:
            async for piece in answer.aiter_raw():
                seen += piece
                if seen.count(PINGS[path]) == 2:
                    s.backend.go.set()
        assert said(path, seen) == "Hello again"
        assert not seen.startswith(PINGS[path])


async def test_complete_response_has_no_pings() -> None:
    async with served(silent_then_plain, max_status_delay_s=0.01, keepalive_interval_s=0.01) as s, s.client() as client:
        asking = asyncio.ensure_future(client.post(CHAT, json=body(stream=False)))
        await s.backend.begun.wait()
        asyncio.get_running_loop().call_later(0.1, s.backend.go.set)
        answer = await asking
        assert answer.json()["choices"][0]["message"]["content"] == "Hello"


@PATHS
async def test_response_contains_requested_model_name(path: str) -> None:
    async with served(plain) as s, s.client() as client:
        answer = await client.post(path, json=body(stream=False) | {"model": "alias"})
        assert answer.json()["model"] == "alias"


# Errors


async def busy(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    raise QueueFullError("all places are taken", retry_after_s=7)
    yield Start("", "", 0)


@PATHS
@pytest.mark.parametrize("stream", [True, False])
async def test_error_before_first_event_has_http_status(stream: bool, path: str) -> None:
    async with served(busy) as s, s.client() as client:
        answer = await client.post(path, json=body(stream))
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "7"
        assert shape_of(path, answer.json())["message"] == "all places are taken"


async def broken(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await backend.go.wait()
    raise BackendUnavailableError("it died")


async def failed(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await backend.go.wait()
    yield Failure(BackendUnavailableError("it died"))


async def unfinished(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await backend.go.wait()


async def buggy(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await backend.go.wait()
    raise KeyError("secret words of a bug")


async def out_of_order(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    await backend.go.wait()
    yield ToolCallEnd(5)


async def dying_in_silence(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    await backend.go.wait()
    raise BackendUnavailableError("it died")
    yield Start("", "", 0)


BREAKS: list[tuple[Script, str]] = [
    (broken, "it died"),
    (failed, "it died"),
    (unfinished, "the backend ended without finishing its response"),
    (buggy, "internal error; the server's log has it"),
    (out_of_order, "internal error; the server's log has it"),
    (dying_in_silence, "it died"),
]


@PATHS
@pytest.mark.parametrize(("script", "message"), BREAKS)
async def test_error_after_first_byte_is_last_stream_event(script: Script, message: str, path: str) -> None:
    async with served(script, max_status_delay_s=0.01, keepalive_interval_s=0.02) as s, s.client() as client:
        seen = b""
        async with client.stream("POST", path, json=body()) as answer:
            assert answer.status_code == 200
            async for piece in answer.aiter_raw():
                seen += piece
                s.backend.go.set()
        last = seen.removesuffix(ENDS[CHAT]).rpartition(b"data: ")[2]
        assert shape_of(path, json.loads(last))["message"] == message
        assert (ENDS[path] in seen) == (path == CHAT)  # OpenAI's clients wait for [DONE], Anthropic's for an event
        if path == MESSAGES:
            assert b"event: error\n" in seen
        assert b"secret" not in seen


@PATHS
@pytest.mark.parametrize(("script", "message"), BREAKS)
async def test_incomplete_response_without_streaming_is_an_error(script: Script, message: str, path: str) -> None:
    async with served(script) as s, s.client() as client:
        s.backend.go.set()
        answer = await client.post(path, json=body(stream=False))
        assert answer.status_code >= 500
        assert shape_of(path, answer.json())["message"] == message


# Clients


FLOOD_TEXTS = 5_000
"""Of a kilobyte each: more than what lies between server and client can hold."""


def flood_texts() -> Iterator[str]:
    return (f"{i} {'x' * 1000} " for i in range(FLOOD_TEXTS))


async def flood(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    for text in flood_texts():
        yield TextDelta(text)
    yield Finish("stop")


@PATHS
async def test_slow_client_gets_all_text_and_slows_backend(path: str) -> None:
    async with served(flood) as s:
        reader, writer = await s.raw(path)
        await eventually(lambda: s.backend.sent > 256)
        before = -1
        while before != s.backend.sent:  # until backpressure stops the backend
            before = s.backend.sent
            await asyncio.sleep(0.1)
        assert s.backend.sent < FLOOD_TEXTS
        seen = bytearray()
        while not seen.endswith(b"\r\n0\r\n\r\n"):
            seen += await reader.read(65536)
        writer.close()
        stream = chunks(bytes(seen.partition(b"\r\n\r\n")[2]))
        assert said(path, stream) == "".join(flood_texts())
        assert stream.endswith(ENDS[path])


def chunks(data: bytes) -> bytes:
    """Joins the chunks of a chunked body."""
    out, at = [], 0
    while at < len(data):
        start = data.index(b"\r\n", at) + 2
        end = start + int(data[at:start], 16)
        out.append(data[start:end])
        at = end + 2
    return b"".join(out)


@PATHS
async def test_disconnect_of_non_reading_client_stops_backend(path: str) -> None:
    async with served(flood) as s:
        _, writer = await s.raw(path)
        await eventually(lambda: s.backend.sent > 256)
        writer.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            await s.backend.over.wait()
        await eventually(lambda: not s.server.server_state.tasks)


@PATHS
async def test_non_reading_client_stops_backend_after_write_timeout(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(flood, write_timeout_s=0.1) as s:
        _, writer = await s.raw(path)
        async with asyncio.timeout(DEADLINE_S):
            await s.backend.over.wait()
        (facts,) = await lines(caplog, 1)
        writer.transport.abort()
    assert s.backend.sent < FLOOD_TEXTS
    assert facts["status"] == 499


@PATHS
@pytest.mark.parametrize("stream", [True, False])
async def test_client_disconnect_before_first_event_stops_backend(stream: bool, path: str) -> None:
    async with served(silent_then_plain, max_status_delay_s=0.01) as s:
        _, writer = await s.raw(path, stream)
        await s.backend.begun.wait()
        writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await s.backend.over.wait()


async def slow_to_stop(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    try:
        yield Start("", "", 0)
        yield TextDelta("Hello")
        yield Finish("stop")
    finally:
        await asyncio.sleep(0.05)


@PATHS
@pytest.mark.parametrize("stream", [True, False])
async def test_slow_backend_cleanup_is_not_logged_as_disconnect(
    stream: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(slow_to_stop) as s, s.client() as client:
        assert "Hello" in (await client.post(path, json=body(stream))).text
        await eventually(lambda: caplog.records)
    assert json.loads(caplog.records[0].message)["status"] == 200


async def test_forced_shutdown_is_last_stream_event(caplog: pytest.LogCaptureFixture) -> None:
    async with served(silent_then_plain, max_status_delay_s=0.01) as s:
        reader, writer = await s.raw(CHAT)
        await reader.readuntil(PINGS[CHAT])
        for task in s.server.server_state.tasks:
            task.cancel()
        assert b"is being stopped" in await reader.readuntil(ENDS[CHAT])
        await eventually(lambda: not s.server.server_state.tasks)
        writer.close()
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


# The log


async def calls_with_notice(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield Notice("duplicate_call_dropped", "secret words of the model")
    yield TextDelta("secret words of the model")
    yield ToolCallStart(0, "call_1", "search")
    yield ToolCallDelta(0, '{"secret": "words"}')
    yield ToolCallEnd(0)
    yield UsageUpdate(Usage(30, 12))
    yield Finish("stop")


@PATHS
@pytest.mark.parametrize("stream", [True, False])
async def test_access_log_line_contains_facts_but_no_content(
    stream: bool, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with served(calls_with_notice) as s, s.client() as client:
        key = {"authorization": "Bearer secret-key"}
        answer = await client.post(path, json=body(stream), headers=key)
        await eventually(lambda: [r for r in caplog.records if r.name == "dragoman.access"])
    (line,) = [r.message for r in caplog.records if r.name == "dragoman.access"]
    facts = json.loads(line)
    assert facts.pop("ms") >= facts.pop("first_ms") >= 0
    assert facts.pop("id") == answer.headers["x-request-id"] == answer.headers["request-id"]
    assert line.startswith('{"time":"20')
    when = datetime.fromisoformat(facts.pop("time"))
    assert when.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - when) < timedelta(seconds=DEADLINE_S)
    assert facts == {
        "method": "POST",
        "path": path,
        "dialect": "openai_chat" if path == CHAT else "anthropic_messages",
        "model": "n",
        "stream": stream,
        "messages": 1,
        "tools": 0,
        "tool_choice": "auto",
        "agent": "http-library",
        "upstream": "scripted",
        "upstream_model": "m",
        "attempts": 1,
        "input_tokens": 30,
        "output_tokens": 12,
        "finish": "tool_calls",
        "calls": 1,
        "by_tool": {"": {"unchecked": 1}},
        "status": 200,
        "warnings": ["duplicate_call_dropped"],
    }
    assert not [r for r in caplog.records if r.name.startswith("dragoman") and "secret" in r.getMessage()]


async def cut_off_call(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield ToolCallStart(0, "call_1", "search")
    yield ToolCallDelta(0, '{"a": tr')
    yield ToolCallIncomplete(0, '{"a": tru}')
    yield Finish("stop")


@pytest.mark.parametrize("stream", [True, False])
async def test_access_log_contains_finish_reason_sent_to_client(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(cut_off_call) as s, s.client() as client:
        assert '"finish_reason":"stop"' in (await client.post(CHAT, json=body(stream))).text
        (facts,) = await lines(caplog, 1)
    assert (facts["finish"], "incomplete_call" in facts["warnings"]) == ("stop", True)  # type: ignore[operator]


async def lines(caplog: pytest.LogCaptureFixture, count: int) -> list[dict[str, object]]:
    """Returns all access log lines, once there are at least `count`."""

    def found() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == "dragoman.access"]

    await eventually(lambda: len(found()) >= count)
    return [json.loads(line) for line in found()]


async def test_rejected_requests_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    asked: list[tuple[int, str, str, dict[str, str]]] = [
        (401, "POST", CHAT, {"authorization": "Bearer secret"}),
        (403, "GET", "/health", {"host": "evil.example"}),
        (404, "POST", "/v1/nothing", {"x-api-key": "k"}),
        (405, "GET", MESSAGES, {"x-api-key": "k"}),
        (413, "POST", MESSAGES, {"x-api-key": "k"}),
        (200, "GET", "/v1/models", {"x-api-key": "k"}),
        (200, "GET", "/health", {}),
        (200, "GET", "/ready", {}),
    ]
    async with served(plain, api_keys=("k",), max_body_bytes=1024) as s, s.client() as client:
        told = []
        for status, method, path, headers in asked:
            answer = await client.request(method, path, headers=headers, content=b"x" * 1025 if status == 413 else b"")
            assert answer.status_code == status
            assert answer.headers["x-request-id"].startswith("req_")
            told.append((answer.headers["x-request-id"], method, path, status))
        found = await lines(caplog, len(asked) - 2)
    assert [(f["id"], f["method"], f["path"], f["status"]) for f in found] == told[:-2]
    assert [str(f.get("error")).partition(":")[0] for f in found] == [
        *("AuthError", "ForbiddenError", "NotFoundError", "MethodNotAllowedError", "RequestTooLargeError", "None"),
    ]
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"model": "secret" * 9000}, "UnknownModelError: unknown model 'secretsecret"),
        ({"messages": [{"role": "secret"}]}, "RequestError: at $.messages[0].role"),
    ],
)
async def test_log_line_is_short_and_contains_no_field_content(
    change: dict[str, object], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(plain) as s, s.client() as client:
        await client.post(CHAT, json=body() | change)
        await lines(caplog, 1)
    line = caplog.records[0].message
    assert json.loads(line)["error"].startswith(error)
    assert len(line) < 800


async def test_complete_response_has_warning_header() -> None:
    async with served(calls_with_notice) as s, s.client() as client:
        answer = await client.post(CHAT, json=body(stream=False))
        assert answer.headers["x-dragoman-warnings"] == "duplicate_call_dropped"


LONG_WARNING = f"content_dropped: user_{59 * 'x'}"


async def warned(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent | list[AnyEvent], None]:
    """Warnings about the request, two of them equal, then one about the response."""
    yield [
        Start("", "", 0),
        Notice("content_dropped", "secret words", detail="strict"),
        Notice("request_adapted", "secret words"),
        Notice("content_dropped", "secret words", detail="strict"),
        Notice("content_dropped", "secret words", detail="user,\r\n\u4e2d" + 99 * "x"),
    ]
    await backend.go.wait()
    yield TextDelta("Hello")
    yield Notice("missing_closing_tag", "m", "secret words")
    yield UsageUpdate(Usage(30, 12))
    yield Finish("stop")


async def late(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent | list[AnyEvent], None]:
    await backend.go.wait()
    async with contextlib.aclosing(warned(backend, request)) as events:
        async for event in events:
            yield event


@PATHS
@pytest.mark.parametrize(
    ("script", "told"), [(warned, f"content_dropped: strict, request_adapted, {LONG_WARNING}"), (late, None)]
)
async def test_stream_header_contains_warnings_known_at_start(
    path: str, script: Script, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(script, max_status_delay_s=0.05) as s, s.client() as client:
        async with client.stream("POST", path, json=body()) as answer:
            s.backend.go.set()
            assert answer.headers.get("x-dragoman-warnings") == told
            assert "secret" not in str(answer.headers)
            text = (await answer.aread()).decode()
        assert (": dragoman-warnings content_dropped: strict, request_adapted" in text) is (told is None)
        (facts,) = await lines(caplog, 1)
    dropped = "content_dropped: strict"
    assert facts["warnings"] == [dropped, "request_adapted", dropped, LONG_WARNING, "missing_closing_tag"]
    assert "secret" not in str(facts)


@pytest.mark.parametrize("stream", [True, False])
async def test_warnings_of_upstream_gateway_are_forwarded(stream: bool) -> None:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent | list[AnyEvent], None]:
        yield [Start("", "", 0), Notice("content_dropped", "m", detail="image")]
        yield TextDelta("Hello")
        yield Finish("stop")

    async with served(script) as behind:
        gateway = Gateway([HttpBackend("behind", HttpConfig(f"{behind.url}/v1", models=("m",)), {})])
        async with serving(gateway) as (_, url), http_client(url) as client:
            answer = await client.post(MESSAGES, json={**body(stream), "model": "m", "metadata": {"user_id": "x"}})
    labels = answer.headers["x-dragoman-warnings"].split(", ")
    assert labels[0] == "content_dropped: image"
    assert labels[-1] == "content_dropped: metadata"


@pytest.mark.parametrize("stream", [True, False])
async def test_dropped_field_is_reported_in_header(stream: bool) -> None:
    async with served(plain) as behind:
        gateway = Gateway([HttpBackend("behind", HttpConfig(behind.url, models=("m",)), {})])
        async with (
            serving(gateway) as (_, url),
            http_client(url) as client,
        ):
            answer = await client.post(MESSAGES, json={**body(stream), "model": "m", "metadata": {"user_id": "x"}})
    assert answer.status_code == 200
    assert answer.headers["x-dragoman-warnings"] == "content_dropped: metadata"


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (busy, 429, "QueueFullError: all places are taken"),
        (dying_in_silence, 503, "BackendUnavailableError: it died"),
        (buggy, 500, "KeyError"),
    ],
)
async def test_failed_response_is_logged_with_error(
    script: Script, status: int, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(script) as s, s.client() as client:
        s.backend.go.set()
        await client.post(CHAT, json=body(stream=False))
    facts = json.loads(next(r.message for r in caplog.records if r.name == "dragoman.access"))
    assert (facts["status"], facts["error"]) == (status, error)


# The body


async def test_incomplete_request_body_times_out() -> None:
    async with served(plain, body_timeout_s=0.05) as s:
        host, _, port = s.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(http_request(CHAT, b"{", Content_Length="5"))
        answer = await reader.readuntil(b"}}")
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"expected the whole body within 0.05 s" in answer
