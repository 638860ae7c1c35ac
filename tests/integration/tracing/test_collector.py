"""Traces of a real gateway process, as an OTLP collector on the loopback interface receives them."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from support.fake_upstream import Play, Server, server, whole
from support.gateway import MESSAGES, Gateway
from support.otlp_collector import CollectedSpan, Collector, collector
from support.scripted_backend import eventually
from support.semantic_conventions import problems_of, values_of

pytestmark = pytest.mark.serve

TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN: Final = "00f067aa0ba902b7"
TRACE: Final = {"traceparent": f"00-{TRACE_ID}-{CLIENT_SPAN}-01", "tracestate": "vendor=value"}
READ: Final = {
    "name": "read",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
REQUEST: Final[dict[str, Any]] = {
    "model": "m",
    "max_tokens": 99,
    "temperature": 1,
    "messages": [{"role": "user", "content": "Find the secret word, then read it."}],
    "tools": [{"type": "web_search_20250305", "name": "web_search"}, READ],
}
FAILS: Final = whole(503, '{"error": {"message": "loading"}}')


def completion(name: str, arguments: str) -> str:
    """A Chat Completions response with one call."""
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 16}}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps(
        {"id": "up", "object": "chat.completion", "created": 1, "model": "real", "choices": [choice], "usage": usage}
    )


def plays(*bodies: str) -> Play:
    """An upstream server with these responses, one for each request."""
    left = iter(bodies)

    async def play(far: Server, writer: asyncio.StreamWriter) -> None:
        await whole(200, next(left), x_request_id="up_1")(far, writer)

    return play


SEARCHES: Final = completion("web_search", '{"query": "word"}')
INVALID: Final = completion("read", "{}")
VALID: Final = completion("read", '{"path": "word.txt"}')


def settings(home: Path, *upstreams: Server) -> Path:
    """A settings file with these upstream servers, and a search in a folder of documents."""
    (home / "documents").mkdir()
    (home / "documents" / "word.md").write_text("The secret word is plum.")
    names = [f"u{number}" for number, _ in enumerate(upstreams)]
    tables = [
        f'[upstreams.{name}]\nurl = "{far.url}/v1"\nmodels = ["own"]\nmax_retries = 0\ntool_mode = "native"\n'
        for name, far in zip(names, upstreams, strict=True)
    ]
    targets = json.dumps([f"{name}/own" for name in names])
    path = home / "config.toml"
    path.write_text(
        f'[model_aliases]\nm = {targets}\n{"".join(tables)}[tools.web_search]\nuse = "local"\npath = "documents"\n'
    )
    return path


@pytest.fixture
def collected() -> Iterator[Collector]:
    with collector() as made:
        yield made


def variables(made: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": made.url, "OTEL_SERVICE_NAME": "gate"}


async def gateway_of(home: Path, config: Path, more: dict[str, str]) -> Gateway:
    made = Gateway(home, "--config", str(config), "--log-format", "json", variables=more)
    return await asyncio.to_thread(made.ready)


async def test_one_trace_from_client_to_upstream(tmp_path: Path, collected: Collector) -> None:
    """One request fails over, runs a search and is re-asked."""
    async with server(FAILS) as one, server(plays(SEARCHES, INVALID, VALID)) as two:
        gateway = await gateway_of(tmp_path, settings(tmp_path, one, two), variables(collected))
        answer = await asyncio.to_thread(gateway.post, MESSAGES, REQUEST, **TRACE)
        status = await asyncio.to_thread(gateway.stop)
    assert (answer.status_code, status) == (200, 0), (answer.text, gateway.lines)
    assert answer.json()["content"][-1]["input"] == {"path": "word.txt"}
    assert gateway.records()[-1]["trace_id"] == TRACE_ID
    spans = collected.spans
    assert {span.trace_id for span in spans} == {TRACE_ID}
    assert {span.state for span in spans} == {"vendor=value"}
    (root,) = collected.named("POST /v1/messages")
    assert (root.kind, root.parent_id, root.status) == ("server", CLIENT_SPAN, "unset")
    (tool,) = collected.named("execute_tool web_search")
    attempts = collected.named("chat own")
    assert len(spans) == 2 + len(attempts)
    assert {span.parent_id for span in [tool, *attempts]} == {root.span_id}
    sent = [headers for far in (one, two) for _, headers, _ in far.asked]
    assert [each["traceparent"] for each in sent] == [f"00-{TRACE_ID}-{span.span_id}-01" for span in attempts]
    assert {each["tracestate"] for each in sent} == {"vendor=value"}
    facts = [(span.status, span.attributes.get("error.type"), span.attributes["dragoman.attempt"]) for span in attempts]
    assert facts == [("error", "503", 1), ("unset", None, 2), ("unset", None, 2), ("unset", None, 3)]
    assert [span.attributes.get("dragoman.round") for span in attempts] == [None, None, 2, None]
    assert [span.attributes.get("dragoman.reask") for span in attempts] == [None, None, None, "reasked"]
    assert attempts[1].ended_ns <= tool.began_ns <= tool.ended_ns <= attempts[2].began_ns
    check_attributes(root, tool, attempts)


def check_attributes(root: CollectedSpan, tool: CollectedSpan, attempts: list[CollectedSpan]) -> None:
    for span in (root, tool, *attempts):
        assert problems_of(span.kind, span.attributes) == []
        assert span.schema_url == "https://opentelemetry.io/schemas/1.41.1"
        assert span.resource["service.name"] == "gate"
        assert span.attributes.get("gen_ai.operation.name", "chat") in values_of("GenAiOperationNameValues")
        assert "plum" not in str(span.attributes), "no content"
        assert "secret" not in str(span.attributes), "no content"
    last = attempts[-1].attributes
    assert last["gen_ai.provider.name"] in values_of("GenAiProviderNameValues")
    assert (last["gen_ai.request.model"], last["gen_ai.response.model"]) == ("own", "own")
    assert (last["server.address"], last["dragoman.upstream"]) == ("127.0.0.1", "u1")
    assert last["gen_ai.response.finish_reasons"] == ["tool_calls"]
    usage = {name.removeprefix("gen_ai.usage."): value for name, value in last.items() if "usage" in name}
    assert usage == {"input_tokens": 20, "output_tokens": 5, "cache_read.input_tokens": 16}
    assert (last["dragoman.tool_mode"], last["dragoman.upstream_request_id"]) == ("native", "up_1")
    assert (tool.kind, tool.attributes["gen_ai.tool.name"]) == ("internal", "web_search")
    told = root.attributes
    assert (told["http.route"], told["http.response.status_code"], told["dragoman.attempts"]) == (MESSAGES, 200, 3)
    assert "failed_over" in told["dragoman.warnings"]
    assert told["dragoman.tool_calls.reasked"] == 1


async def test_spans_of_responses_that_shutdown_breaks_off_are_exported(tmp_path: Path, collected: Collector) -> None:
    async def waits(far: Server, writer: asyncio.StreamWriter) -> None:
        await far.left.wait()

    async with server(waits) as far:
        gateway = await gateway_of(tmp_path, settings(tmp_path, far), variables(collected))
        asked = asyncio.ensure_future(asyncio.to_thread(gateway.post, MESSAGES, REQUEST, **TRACE))
        await eventually(lambda: far.asked)
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(gateway.line, "waiting up to")
        status = await asyncio.to_thread(gateway.stop)
        answer = await asked
    assert (answer.status_code, status) == (529, 0)
    (root,), (attempt,) = collected.named("POST /v1/messages"), collected.named("chat own")
    assert (root.status, root.attributes["error.type"]) == ("error", "BackendUnavailableError")
    assert (attempt.status, attempt.attributes["error.type"]) == ("error", "cancelled")


@pytest.mark.parametrize("fault", ["hangs", "refuses", "gone"])
async def test_collector_that_fails_delays_no_request_and_no_exit(
    fault: str, tmp_path: Path, collected: Collector
) -> None:
    more = {**variables(collected), "OTEL_BSP_SCHEDULE_DELAY": "10"}
    if fault == "hangs":
        collected.hang.clear()
    elif fault == "refuses":
        collected.status = 500
    else:
        more["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"  # the port of a service that is never there
    async with server(plays(VALID, VALID)) as far:
        gateway = await gateway_of(tmp_path, settings(tmp_path, far), more)
        answers = [await asyncio.to_thread(gateway.post, MESSAGES, REQUEST, **TRACE) for _ in range(2)]
        began_s = time.monotonic()
        status = await asyncio.to_thread(gateway.stop)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [record["ms"] < 5000 for record in gateway.records()] == [True, True]
    assert status == 0
    assert time.monotonic() - began_s < 20, "the exporter's own limit is 10 s for each batch"


async def test_missing_exporter_ends_command(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, "--log-format", "text", variables={"OTEL_TRACES_EXPORTER": "zipkin"})
    assert await asyncio.to_thread(gateway.ended) == 2
    assert any("got 'zipkin' - at OTEL_TRACES_EXPORTER" in line for line in gateway.lines)
