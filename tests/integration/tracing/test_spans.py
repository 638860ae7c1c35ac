"""Spans of requests to a gateway of this process: every way to end, passthrough, retries, and what is not recorded."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Sampler

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.backend import EventStream, ExchangeContext, PromptProgress
from dragoman.core.errors import BackendUnavailableError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, TextDelta, UsageUpdate
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.tracing.exchange import Tracing
from support.fake_upstream import END, FRONTS, HEAD, Play, Server, ask, begins, dies, piece, server, whole
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import Scripted, body, eventually, plain, serving
from support.semantic_conventions import problems_of

TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE: Final = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01", "tracestate": "vendor=value"}
UNSAMPLED: Final = {"traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-00"}
FAILS: Final = whole(503, '{"error": {"message": "loading"}}')
REFUSES: Final = whole(400, '{"error": {"message": "the secret word is not valid"}}')


class Recorded:
    """The spans of a gateway in this process."""

    def __init__(self, sampler: Sampler = DEFAULT_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider.get_tracer("dragoman"))

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        found = sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
        for span in found:
            assert problems_of(span.kind.name.lower(), attributes(span)) == []
        return found

    def facts(self) -> list[tuple[str, str, Any]]:
        """Name, status and `error.type` of each."""
        return [
            (span.name, span.status.status_code.name, dict(span.attributes or {}).get("error.type"))
            for span in self.spans
        ]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def upstream(name: str, far: Server, model: str = "own", **settings: Any) -> HttpBackend:
    own = {"models": (model,), "max_retries": 0, **settings}
    return HttpBackend(name, HttpConfig(url=f"{far.url}/v1", **own), {})


@contextlib.asynccontextmanager
async def traced(recorded: Recorded, play: Play, **settings: Any) -> AsyncIterator[tuple[Server, str]]:
    """An upstream server, and the URL of a gateway with its only model, `m`."""
    async with server(play) as far:
        gateway = Gateway([upstream("a", far, "m", **settings)])
        async with serving(gateway, tracing=recorded.tracing) as (_, url):
            yield far, url


async def streams(far: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + piece({"content": "Hello"}, "stop") + END)


def traceparent(span: ReadableSpan) -> str:
    """The header by which this span is the parent of another server's."""
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def parent_id(span: ReadableSpan) -> str:
    return f"{span.parent.span_id:016x}" if span.parent else ""


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FRONTS)
async def test_server_span_contains_attempt(path: str, stream: bool, recorded: Recorded) -> None:
    async with traced(recorded, streams if stream else whole(200, COMPLETION)) as (far, url):
        answer = await ask(url, path, stream, TRACE)
    assert answer.status_code == 200
    root, attempt = recorded.spans
    assert (root.name, attempt.name) == (f"POST {path}", "chat m")
    assert (parent_id(root), parent_id(attempt)) == ("00f067aa0ba902b7", traceparent(root)[36:52])
    sent = far.asked[0][1]
    assert sent["traceparent"] == traceparent(attempt)
    assert sent["tracestate"] == "vendor=value"
    told = attributes(root)
    assert (told["http.request.method"], told["http.route"], told["http.response.status_code"]) == ("POST", path, 200)
    assert (told["server.address"], told["client.address"], told["url.scheme"]) == ("127.0.0.1", "127.0.0.1", "http")
    assert told["dragoman.request_id"] == answer.headers["x-request-id"]
    assert attributes(attempt).get("gen_ai.request.stream") == (True if stream else None)
    assert ("gen_ai.response.time_to_first_chunk" in attributes(attempt)) == stream
    assert (attempt.end_time or 0) <= (root.end_time or 0)


async def test_trace_of_gateway_is_used_without_trace_of_client(recorded: Recorded) -> None:
    async with traced(recorded, whole(200, COMPLETION)) as (far, url):
        await ask(url, CHAT, False)
    root, attempt = recorded.spans
    assert root.parent is None
    assert far.asked[0][1]["traceparent"] == traceparent(attempt)


@pytest.mark.parametrize(("sampler", "trace"), [(DEFAULT_ON, UNSAMPLED), (ALWAYS_OFF, TRACE)])
async def test_trace_that_is_not_sampled_is_forwarded(sampler: Sampler, trace: dict[str, str]) -> None:
    recorded = Recorded(sampler)
    async with traced(recorded, whole(200, COMPLETION)) as (far, url):
        await ask(url, CHAT, False, trace)
    assert recorded.spans == []
    assert far.asked[0][1]["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert far.asked[0][1]["traceparent"].endswith("-00")


async def test_failover_is_two_attempts(recorded: Recorded) -> None:
    async with server(FAILS) as one, server(whole(200, COMPLETION)) as two:
        gateway = Gateway([upstream("a", one), upstream("b", two)], {"m": ["a/own", "b/own"]})
        async with serving(gateway, tracing=recorded.tracing) as (_, url):
            await ask(url, MESSAGES, False)
    assert recorded.facts() == [
        ("POST /v1/messages", "UNSET", None),
        ("chat own", "ERROR", "503"),
        ("chat own", "UNSET", None),
    ]
    assert [attributes(span)["dragoman.upstream"] for span in recorded.spans] == ["b", "a", "b"]


async def test_retry_is_attempt_of_its_own(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def no_sleep(delay_s: float) -> None:
        slept.append(delay_s)

    monkeypatch.setattr("dragoman.backends.http.retry.sleep", no_sleep)
    plays = iter([FAILS, whole(200, COMPLETION)])

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await next(plays)(far, writer)

    async with server(play) as far:
        gateway = Gateway([upstream("a", far, "m", max_retries=1)])
        async with serving(gateway, tracing=recorded.tracing) as (_, url):
            await ask(url, MESSAGES, False)
    _, first, second = recorded.spans
    assert [attributes(span)["dragoman.attempt"] for span in (first, second)] == [1, 2]
    assert recorded.facts()[1:] == [("chat m", "ERROR", "503"), ("chat m", "UNSET", None)]
    assert [asked[1]["traceparent"] for asked in far.asked] == [traceparent(first), traceparent(second)]
    assert (second.start_time or 0) - (first.end_time or 0) >= slept[0] * 1e9 > 0, "the delay is in no span"
    assert (second.end_time or 0) >= (second.start_time or 0)


@pytest.mark.parametrize("play", [dies, whole(200, "{}")])
async def test_failed_response_has_error(play: Play, recorded: Recorded) -> None:
    async with traced(recorded, play) as (_, url):
        await ask(url, CHAT, play is dies)
    assert [status for _, status, _ in recorded.facts()] == ["ERROR", "ERROR"]
    assert all(kind for _, _, kind in recorded.facts())


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_disconnects_ends_spans(stream: bool, recorded: Recorded) -> None:
    async def waits(far: Server, writer: asyncio.StreamWriter) -> None:
        await begins(far, writer)
        await far.left.wait()

    async with traced(recorded, waits) as (far, url):
        async with http_client(url) as client:
            asked = asyncio.ensure_future(client.post(CHAT, json={**body(stream), "model": "m"}))
            await eventually(lambda: far.asked)
            asked.cancel()
            await asyncio.wait({asked})
        await eventually(lambda: len(recorded.spans) == 2)
    assert [(status, kind) for _, status, kind in recorded.facts()] == [("ERROR", "cancelled")] * 2
    assert attributes(recorded.spans[0])["http.response.status_code"] == 499


async def test_errors_of_clients_are_no_errors_of_gateway(recorded: Recorded) -> None:
    """The text of an upstream error, which may repeat the request, is in no span."""
    async with server(REFUSES) as far:
        gateway = Gateway([upstream("a", far, "m")])
        async with serving(gateway, tracing=recorded.tracing) as (_, url), http_client(url) as client:
            await ask(url, CHAT, False)
            await client.post(CHAT, content=b"{")
            await client.get("/nowhere?key=sk-secret&beta=true")
            await client.get("/v1/models/absent")
            await client.get("/health")
    assert recorded.facts() == [
        ("POST /v1/chat/completions", "UNSET", None),
        ("chat m", "ERROR", "400"),
        ("POST /v1/chat/completions", "UNSET", None),
        ("GET", "UNSET", None),
        ("GET /v1/models/{id}", "UNSET", None),
    ]
    assert [attributes(span).get("http.response.status_code") for span in recorded.spans] == [400, None, 400, 404, 404]
    assert attributes(recorded.spans[3])["url.query"] == "key=REDACTED&beta=REDACTED"
    assert "secret" not in " ".join(span.to_json() for span in recorded.spans)


@pytest.mark.parametrize("stream", [False, True])
async def test_response_that_is_passed_through_has_attempt(stream: bool, recorded: Recorded) -> None:
    async with server(streams if stream else whole(200, COMPLETION)) as far:
        backend = upstream("a", far, "m", tool_mode="native", passthrough=True)
        async with serving(Gateway([backend]), tracing=recorded.tracing) as (_, url):
            await ask(url, CHAT, stream, TRACE)
    root, attempt = recorded.spans
    assert attributes(root)["dragoman.passthrough"] is True
    assert far.asked[0][1]["traceparent"] == traceparent(attempt)
    assert attributes(attempt)["gen_ai.response.finish_reasons"] == ("stop",)


async def test_untranslated_request_has_attempts(recorded: Recorded) -> None:
    answer = json.dumps({"data": [], "usage": {"prompt_tokens": 7}})
    async with server(FAILS) as one, server(whole(200, answer)) as two:
        gateway = Gateway([upstream("a", one, "m"), upstream("b", two, "m")])
        async with serving(gateway, tracing=recorded.tracing) as (_, url), http_client(url) as client:
            await client.post("/v1/embeddings", json={"model": "m", "input": "hi"}, headers=TRACE)
    assert recorded.facts() == [
        ("POST /v1/embeddings", "UNSET", None),
        ("embeddings m", "ERROR", "503"),
        ("embeddings m", "UNSET", None),
    ]
    last = recorded.spans[-1]
    assert attributes(last)["gen_ai.usage.input_tokens"] == 7
    assert two.asked[0][1]["traceparent"] == traceparent(last)


class Engine(Scripted):
    """Reports its progress as the embedded engine does."""

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        assert context.progress is not None
        context.progress(PromptProgress(0, 0, waits_for="loading m"))
        context.progress(PromptProgress(0, 40))
        yield [Start(context.id, "m", 0, 40)]
        context.progress(PromptProgress(40, 40))
        yield [TextDelta("Hello")]
        yield [UsageUpdate(Usage(40, 1)), Finish("stop")]


async def test_engine_has_span_for_each_phase(recorded: Recorded) -> None:
    async with serving(Gateway([Engine(plain)]), tracing=recorded.tracing) as (_, url):
        await ask(url, CHAT, True)
    _, attempt, *phases = recorded.spans
    assert [span.name for span in phases] == ["load", "read prompt", "decode"]
    assert {parent_id(span) for span in phases} == {traceparent(attempt)[36:52]}
    assert attributes(phases[1]) == {"dragoman.prompt_tokens": 40}
    assert phases[-1].end_time == attempt.end_time


async def test_exception_of_spans_reaches_no_client(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the SDK raises at the end of a request is logged, and changes nothing else."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no span")

    monkeypatch.setattr("dragoman.tracing.exchange.ExchangeTrace.finish", fails)
    async with serving(Gateway([Scripted(plain)]), tracing=recorded.tracing) as (_, url):
        assert (await ask(url, CHAT, False)).status_code == 200


async def test_error_of_backend_without_status_is_named(recorded: Recorded) -> None:
    async def script(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield TextDelta("It")
        yield Failure(BackendUnavailableError("gone"))

    async with serving(Gateway([Scripted(script)]), tracing=recorded.tracing) as (_, url):
        await ask(url, CHAT, True)
    assert [kind for _, _, kind in recorded.facts()] == ["BackendUnavailableError"] * 2


async def test_numbers_beyond_64_bits_are_limited(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    """The exporter would log an exception for each number that it cannot encode."""
    huge = 10**30
    answer = json.loads(COMPLETION) | {"usage": {"prompt_tokens": huge, "completion_tokens": huge}}
    async with traced(recorded, whole(200, json.dumps(answer))) as (_, url):
        await ask(url, CHAT, False, seed=huge, top_k=huge)
    assert encode_spans(recorded.spans).SerializeToString()
    assert attributes(recorded.spans[1])["gen_ai.request.seed"] == 2**63 - 1
    assert [each for each in caplog.records if each.name.startswith("opentelemetry")] == []


async def test_text_that_is_no_unicode_is_exported(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    async with traced(recorded, whole(200, COMPLETION)) as (_, url), http_client(url) as client:
        headers = {"user-agent": b"caf\xe9", "x-claude-code-session-id": b"\xff"}
        await client.post(CHAT, content=b'{"model": "\\ud800", "messages": []}', headers=headers)
        await client.get("/v1/models/%ff%ed%a0%80?%ff=%ff")
    assert len(recorded.spans) == 2
    assert encode_spans(recorded.spans).SerializeToString()
    assert [each for each in caplog.records if each.name.startswith("opentelemetry")] == []


async def test_span_names_client(recorded: Recorded) -> None:
    headers = {"user-agent": "claude-cli/2.1.329 (external, cli)", "x-claude-code-session-id": "s1"}
    async with traced(recorded, whole(200, COMPLETION)) as (_, url):
        await ask(url, MESSAGES, False, headers)
    root, attempt = recorded.spans
    assert attributes(root)["dragoman.agent"] == "claude-code"
    assert attributes(attempt)["gen_ai.conversation.id"] == "s1"
