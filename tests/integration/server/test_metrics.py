"""/metrics: request counters, read with the parser of Prometheus, and no secrets in them."""

import json
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Sequence

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from dragoman import dialects
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.errors import BackendUnavailableError, QueueFullError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    Start,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Tool, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.server.base_exchange import Route
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.call_outcomes import FAILED, OUTCOMES
from dragoman.server.observe.metrics import OTHER, Metrics
from support.gateway import CHAT, MESSAGES
from support.http_client import http_client
from support.paths import ROOT
from support.scripted_backend import Scripted, body, eventually, plain, served, serving

PAGE = (ROOT / "docs" / "metrics.md").read_text()
COUNT = "/v1/messages/count_tokens"
CALLS = "dragoman_tool_calls_total"


def samples(text: str) -> dict[str, list[Sample]]:
    """Returns samples by name; checks that every family has help and type, and that no series is duplicated."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    series = [(name, tuple(sorted(s.labels.items()))) for name, group in found.items() for s in group]
    assert len(series) == len(set(series))
    return found


async def scraped(url: str, **headers: str) -> dict[str, list[Sample]]:
    async with http_client(url) as client:
        answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples(answer.text)


def value(found: dict[str, list[Sample]], name: str, **labels: str) -> float:
    """The sum of all series with these labels."""
    return sum(s.value for s in found.get(name, ()) if labels.items() <= s.labels.items())


def by(found: dict[str, list[Sample]], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Non-zero values by these labels."""
    return {tuple(s.labels[label] for label in labels): s.value for s in found.get(name, ()) if s.value}


def offering(path: str, stream: bool = True, tools: Iterable[str] = ("search", "look")) -> dict[str, object]:
    """A request for model `m` with these tools, each with a required integer `days`."""
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    if path == CHAT:
        functions = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in tools]
        return body(stream) | {"model": "m", "tools": functions}
    return body(stream) | {"model": "m", "tools": [{"name": name, "input_schema": schema} for name in tools]}


async def calling(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield ToolCallStart(0, "call_1", "search")
    yield ToolCallDelta(0, '{"days": 3}')
    yield ToolCallEnd(0)
    yield Notice("missing_closing_tag", "secret words of the model")
    yield ToolCallStart(1, "call_2", "look")
    yield ToolCallDelta(1, '{"a"')
    yield ToolCallIncomplete(1, '{"a"')
    yield UsageUpdate(Usage(30, 5))
    yield UsageUpdate(Usage(30, 12))
    yield Finish("length")


async def busy(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Failure(QueueFullError("all places are taken"))


async def broken(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0, 7)
    yield ToolCallStart(0, "call_1", "search")
    yield ToolCallDelta(0, '{"da')
    yield Failure(BackendUnavailableError("it died"))


# Counters


async def test_requests_tokens_calls_and_warnings_are_counted() -> None:
    async with served(calling, policy=GuardPolicy()) as s, s.client() as client:
        await client.post(CHAT, json=offering(CHAT))
        await client.post(MESSAGES, json=offering(MESSAGES, stream=False))
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "dialect", "model", "status") == {
        ("openai_chat", "m", "200"): 1,
        ("anthropic_messages", "m", "200"): 1,
    }
    assert value(found, "dragoman_input_tokens_total", model="m") == 60
    assert value(found, "dragoman_output_tokens_total", model="m") == 24
    assert value(found, CALLS, model="m", tool="search", outcome="valid") == 2
    assert value(found, CALLS, model="m", tool="", outcome="incomplete") == 2, "held, it became text"
    assert value(found, "dragoman_warnings_total", model="m", code="incomplete_call") == 2
    assert value(found, CALLS) == 4
    assert value(found, "dragoman_warnings_total", model="m", code="missing_closing_tag") == 2
    assert value(found, "dragoman_answer_duration_seconds_count", model="m") == 2
    assert value(found, "dragoman_first_byte_seconds_count", model="m") == 1
    assert value(found, "dragoman_backend_up", backend="scripted") == 1
    assert value(found, "dragoman_requests_in_flight") == 0
    assert value(found, "dragoman_start_time_seconds") > 1.7e9
    assert "secret" not in str(found)


async def test_model_aliases_count_under_one_name() -> None:
    """Its own name, an alias of the backend, one of the settings, and its display name in one API."""
    async with served(plain) as s, s.client() as client:
        for name in ("m", "n", "alias", dialects.get("anthropic_messages").display_name("m")):
            answer = await client.post(MESSAGES, json=body() | {"model": name})
            assert answer.status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model") == {("m",): 4}


async def test_alias_of_several_models_counts_under_its_own_name() -> None:
    gateway = Gateway([Scripted(plain, ["a", "b"])], {"either": ("a", "b")})
    async with serving(gateway) as (_, url), http_client(url) as client:
        await client.post(CHAT, json=body() | {"model": "either"})
        found = await scraped(url)
    assert by(found, "dragoman_requests_total", "model") == {("either",): 1}


async def test_failures_are_counted_by_error_class() -> None:
    async with served(broken, policy=GuardPolicy(buffering="off")) as s, s.client() as client:
        assert (await client.post(CHAT, json=offering(CHAT))).status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_failures_total", "dialect", "model", "error") == {
        ("openai_chat", "m", "BackendUnavailableError"): 1
    }
    assert value(found, CALLS, tool="search", outcome="incomplete") == 1, "the call that it broke off in"
    assert value(found, "dragoman_input_tokens_total") == 7
    async with served(busy) as s, s.client() as client:
        assert (await client.post(CHAT, json=body())).status_code == 429
        assert (await client.post(CHAT, content=b"{")).status_code == 400
        assert (await client.post(CHAT, json=body() | {"model": "none"})).status_code == 404
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model", "status") == {
        ("m", "429"): 1,
        (OTHER, "400"): 1,
        (OTHER, "404"): 1,
    }
    assert by(found, "dragoman_failures_total", "error") == {
        ("QueueFullError",): 1,
        ("RequestError",): 1,
        ("UnknownModelError",): 1,
    }
    assert "dragoman_answer_duration_seconds_count" not in found, "none of them began"


async def test_token_count_requests_are_counted_separately() -> None:
    async with served(plain) as s, s.client() as client:
        s.backend.tokens = 5
        assert (await client.post(COUNT, json=body())).status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_token_counts_total", "dialect", "model", "status") == {
        ("anthropic_messages", "m", "200"): 1
    }
    assert "dragoman_requests_total" not in found
    assert value(found, "dragoman_input_tokens_total") == 0


async def waiting(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    await backend.go.wait()
    yield Finish("stop")


async def test_requests_in_flight_and_disconnects_are_counted() -> None:
    async with served(waiting) as s:
        _, leaving = await s.raw(CHAT)
        await s.backend.begun.wait()
        assert value(await scraped(s.url), "dragoman_requests_in_flight") == 1
        leaving.close()
        await s.backend.over.wait()
        found = await scraped(s.url)
        while value(found, "dragoman_requests_in_flight"):  # the backend stops a moment before the request ends
            found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model", "status") == {("m", "499"): 1}


@pytest.mark.parametrize("stream", [True, False])
async def test_passthrough_responses_are_counted(stream: bool) -> None:
    """Tokens are counted; calls only in complete responses, as unchecked."""
    async with served(calling, policy=GuardPolicy()) as behind:
        backend = HttpBackend("near", HttpConfig(behind.url, models=("m",), passthrough=True), {})
        async with serving(Gateway([backend])) as (_, url), http_client(url) as client:
            answer = await client.post(CHAT, json=offering(CHAT, stream))
            assert answer.status_code == 200
            found = await scraped(url)
    assert value(found, "dragoman_passthrough_responses_total", model="m") == 1
    assert value(found, "dragoman_output_tokens_total", model="m") == 12
    assert value(found, CALLS, tool="search", outcome="unchecked") == (0 if stream else 1)
    assert value(found, "dragoman_requests_total", model="m", status="200") == 1


# Outcomes of calls


def ended(*ends: ToolCallEnd, warnings: Sequence[str] = ()) -> dict[str, list[Sample]]:
    """Returns the metrics after one response with these calls of `search`."""
    return told(*(one for n, end in enumerate(ends) for one in (ToolCallStart(n, "id", "search"), end)), codes=warnings)


def told(
    *events: AnyEvent, codes: Sequence[str] = (), offered: Iterable[str] | None = None, metrics: Metrics | None = None
) -> dict[str, list[Sample]]:
    """Returns the metrics after one response with these events; by default the called tools are offered."""
    if offered is None:
        offered = {event.name for event in events if isinstance(event, ToolCallStart)}
    metrics = metrics or Metrics(Gateway([Scripted(plain)]))
    dialect = dialects.get("openai_chat")
    asked = dialect.read_request(json.dumps(body()))
    record = AccessRecord("POST", CHAT)
    record.on_request(dialect.name, replace(asked, tools=tuple(map(Tool, offered))))
    for event in (Start("", "m", 0), *events, *(Notice(code, "secret") for code in codes), Finish("stop")):
        record.observe(event)
    record.status = 200
    record.close()
    metrics.begin()
    metrics.finish(Route(dialect), record)
    return text_of(metrics.registry)


def text_of(registry: CollectorRegistry) -> dict[str, list[Sample]]:
    from prometheus_client import generate_latest

    return samples(generate_latest(registry).decode())


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (ToolCallEnd(0, (), True), "valid"),
        (ToolCallEnd(0, ("to_number",), True), "repaired"),
        (ToolCallEnd(0, ("to_number",), None), "repaired"),
        (ToolCallEnd(0, (), True, True), "reasked"),
        (ToolCallEnd(0, ("to_number",), True, True), "reasked"),
        (ToolCallEnd(0), "unchecked"),
        (ToolCallEnd(0, (), False), "invalid"),
        (ToolCallEnd(0, ("to_number",), False, True), "invalid"),
    ],
)
def test_call_has_exactly_one_outcome(end: ToolCallEnd, outcome: str) -> None:
    assert by(ended(end), CALLS, "model", "tool", "outcome") == {("m", "search", outcome): 1}


def test_outcomes_that_did_not_occur_are_zero() -> None:
    """Ratios need zeros: Prometheus has no value for a missing series."""
    found = ended(ToolCallEnd(0, (), False))
    assert {s.labels["outcome"]: s.value for s in found[CALLS]} == dict.fromkeys(OUTCOMES, 0) | {"invalid": 1}


def test_invented_tool_names_have_no_label() -> None:
    found = told(ToolCallStart(0, "id", "made up"), ToolCallEnd(0, (), False), codes=["invalid_call"], offered=["look"])
    assert by(found, CALLS, "tool", "outcome") == {("", "unknown"): 1}


def test_repair_steps_are_counted() -> None:
    found = ended(
        ToolCallEnd(0, ("match_case", "to_number"), True),
        ToolCallEnd(1, ("to_number",), True),
        ToolCallEnd(2, (), True),
    )
    assert by(found, "dragoman_tool_call_repairs_total", "model", "tool", "step") == {
        ("m", "search", "match_case"): 1,
        ("m", "search", "to_number"): 2,
    }


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("unknown_tool", "unknown"),
        ("unnamed_call", "unknown"),
        ("incomplete_call", "incomplete"),
        ("truncated_call", "incomplete"),
        ("invalid_call", "invalid"),
    ],
)
def test_call_known_only_from_warning_has_empty_tool_label(code: str, outcome: str) -> None:
    found = ended(ToolCallEnd(0, (), True), warnings=[code])
    assert by(found, CALLS, "tool", "outcome") == {("search", "valid"): 1, ("", outcome): 1}
    assert outcome in FAILED


def test_invalid_call_and_its_warning_count_once() -> None:
    found = ended(ToolCallEnd(0, (), False), warnings=["invalid_call"])
    assert by(found, CALLS, "tool", "outcome") == {("search", "invalid"): 1}


def test_every_call_outcome_is_documented() -> None:
    section = PAGE.partition("## Tool call outcomes")[2].partition("## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.M)) == OUTCOMES
    failed = re.search(r'outcome=~"([\w|]+)"', PAGE)
    assert failed is not None
    assert set(failed[1].split("|")) == FAILED


WRONG, TEXT, RIGHT = '{"day": 3}', '{"days": "3"}', '{"days": 3}'


@pytest.mark.parametrize(
    ("answers", "outcome", "codes"),
    [
        ([RIGHT], "valid", set()),
        ([TEXT], "repaired", {"call_repaired"}),
        ([WRONG, RIGHT], "reasked", {"reasked"}),
        ([WRONG, TEXT], "reasked", {"reasked", "call_repaired"}),
        ([WRONG, WRONG], "invalid", {"reasked", "reask_failed", "invalid_call"}),
    ],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_guard_results_are_counted_end_to_end(
    path: str, answers: list[str], outcome: str, codes: set[str]
) -> None:
    """End to end, from the model's text to the metrics."""

    async def says(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
        yield Start("", "", 0)
        yield ToolCallStart(0, "call_1", "search")
        yield ToolCallDelta(0, answers.pop(0))
        yield ToolCallEnd(0)
        yield UsageUpdate(Usage(30, 12))
        yield Finish("stop")

    asked, last = len(answers), answers[-1]
    answers = list(answers)
    async with served(says, policy=GuardPolicy()) as s, s.client() as client:
        assert (await client.post(path, json=offering(path))).status_code == 200
        found = await scraped(s.url)
    assert by(found, CALLS, "model", "tool", "outcome") == {("m", "search", outcome): 1}
    assert {code for (code,) in by(found, "dragoman_warnings_total", "code")} == codes
    assert value(found, "dragoman_tool_call_repairs_total", step="to_number") == (last == TEXT)
    assert value(found, "dragoman_output_tokens_total") == 12 * asked


async def wrong(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield ToolCallStart(0, "call_1", "search" if len(request.messages) == 1 else "made up")
    yield ToolCallDelta(0, WRONG)
    yield ToolCallEnd(0)
    yield Finish("stop")


@pytest.mark.parametrize("buffering", ["off", "short", "all"])
@pytest.mark.parametrize("stream", [True, False])
async def test_call_invalid_after_reask_counts_as_invalid(stream: bool, buffering: str) -> None:
    """Also if it is returned as text instead of as a call."""
    async with served(wrong, policy=GuardPolicy()) as s, s.client() as client:
        headers = {"x-dragoman-buffering": buffering}
        assert (await client.post(CHAT, json=offering(CHAT, stream), headers=headers)).status_code == 200
        found = await scraped(s.url)
    tool = "" if buffering == "all" else "search"
    assert by(found, CALLS, "tool", "outcome") == {(tool, "invalid"): 1}


# Unknown names from clients and models

NASTY = [
    'q"uote',
    "back\\slash",
    "new\nline",
    "\r",
    "nul\0",
    "é\u2028\U0001f600",
    "} 1\ndragoman_backend_up 0",
    "x" * 9999,
]


def test_unusual_tool_names_are_escaped_in_metrics() -> None:
    calls = [(ToolCallStart(n, "id", name), ToolCallEnd(n)) for n, name in enumerate(NASTY)]
    found = told(*(event for pair in calls for event in pair))
    assert {labels for (labels,) in by(found, CALLS, "tool")} == {name[:100] for name in NASTY}


async def test_unknown_models_create_no_series() -> None:
    async with served(plain) as s, s.client() as client:
        for name in [*NASTY, *(f"made up {n}" for n in range(30))]:
            assert (await client.post(CHAT, json=body() | {"model": name})).status_code == 404
        assert (await client.post(CHAT, json=body())).status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model") == {(OTHER,): len(NASTY) + 30, ("m",): 1}
    assert {s.labels["model"] for group in found.values() for s in group if "model" in s.labels} == {"m", OTHER}


def test_number_of_tool_series_is_bounded() -> None:
    """A client that offers new tools in each request gets no new series above the limit."""
    metrics = Metrics(Gateway([Scripted(plain)]))
    for batch in range(2):
        calls = [(ToolCallStart(n, "id", f"t{batch}_{n}"), ToolCallEnd(n, ("to_number",), True)) for n in range(300)]
        found = told(*(event for pair in calls for event in pair), metrics=metrics)
    assert value(found, CALLS) == 600
    assert len(by(found, CALLS, "tool")) == 501
    assert value(found, CALLS, tool=OTHER) == 100
    assert value(found, "dragoman_tool_call_repairs_total", tool=OTHER) == 100


class AcceptsAnyModel(Scripted):
    """A backend that accepts any model name."""

    def resolve_model_name(self, name: str) -> str | None:
        return name


async def test_number_of_model_series_is_bounded() -> None:
    metrics = Metrics(Gateway([AcceptsAnyModel(plain)]))
    dialect = dialects.get("openai_chat")
    for n in range(400):
        record = AccessRecord("POST", CHAT)
        record.on_request(dialect.name, dialect.read_request(json.dumps(body() | {"model": f"made up {n}"})))
        for event in (Start("", "", 0), Finish("stop")) if n % 2 else (Failure(QueueFullError("full")),):
            record.observe(event)
        record.status = 200 if n % 2 else 429
        metrics.begin()
        metrics.finish(Route(dialect), record)
    found = text_of(metrics.registry)
    named = {name for (name,) in by(found, "dragoman_answer_duration_seconds_count", "model")}
    assert len(named) == 200
    assert value(found, "dragoman_requests_total", status="429", model=OTHER) == 200, "none of them is known to be one"


# Access


async def test_metrics_require_api_key() -> None:
    async with served(plain, api_keys=("secret-key",)) as s, s.client() as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"x-api-key": "wrong"})).status_code == 401
        assert (await client.post(CHAT, json=body())).status_code == 401
        found = await scraped(s.url, authorization="Bearer secret-key")
    assert by(found, "dragoman_failures_total", "model", "error") == {(OTHER, "AuthError"): 1}
    assert "secret" not in str(found)


async def test_metrics_reject_foreign_host_and_origin() -> None:
    async with served(plain) as s, s.client() as client:
        assert (await client.get("/metrics", headers={"host": "evil.example"})).status_code == 403
        assert (await client.get("/metrics", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await client.post("/metrics")).status_code == 405


async def test_metrics_can_be_disabled() -> None:
    async with served(plain, metrics=False) as s, s.client() as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.post(CHAT, json=body())).status_code == 200


async def test_each_app_has_its_own_metrics() -> None:
    async with served(plain) as one, served(plain) as other, one.client() as client:
        await client.post(CHAT, json=body())
        assert value(await scraped(one.url), "dragoman_requests_total") == 1
        assert value(await scraped(other.url), "dragoman_requests_total") == 0


async def test_metrics_requests_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(plain) as s, s.client() as client:
        await client.get("/metrics")
        await client.get("/metrics", headers={"host": "evil.example"})
        await eventually(lambda: caplog.records)
    assert [json.loads(r.message)["status"] for r in caplog.records if r.name == "dragoman.access"] == [403]


# Documentation


async def test_every_metric_is_documented() -> None:
    """With its type and labels, after requests that set every metric."""
    documented = {
        name: (kind, tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(dragoman_\w+)` \| (\w+) \| ([^|]*)\|", PAGE, re.M)
    }
    async with served(calling, policy=GuardPolicy()) as s, s.client() as client:
        s.backend.tokens = 5
        for asked in (offering(CHAT), body() | {"model": "none"}):
            await client.post(CHAT, json=asked)
        await client.post(COUNT, json=body())
        families = list(text_string_to_metric_families((await client.get("/metrics")).text))
    shown = {(f.name + "_total" if f.type == "counter" else f.name): f for f in families}
    del documented["dragoman_records_dropped_total"]  # of gateways with records
    assert {name: kind for name, (kind, _) in documented.items()} == {name: f.type for name, f in shown.items()}
    seen = {name: set(f.samples[0].labels) - {"le"} for name, f in shown.items() if f.samples}
    assert {name: set(documented[name][1]) for name in seen} == seen
    assert set(documented) - set(seen) == {
        "dragoman_backend_breaker_open",
        "dragoman_backend_waiting_requests",
        "dragoman_cached_input_tokens_total",
        "dragoman_cost_usd_total",
        "dragoman_failovers_total",
        "dragoman_key_requests_total",
        "dragoman_key_tokens_total",
        "dragoman_overhead_seconds",
        "dragoman_placements_total",
        "dragoman_reasks_total",
        "dragoman_retries_total",
        "dragoman_passthrough_responses_total",
        "dragoman_tool_call_repairs_total",
        "dragoman_tool_run_duration_seconds",
        "dragoman_tool_runs_total",
    }


def test_documented_queries_use_existing_metrics() -> None:
    questions = PAGE.partition("## Example queries")[2].partition("## ")[0]
    names = set(re.findall(r"dragoman_\w+", questions))
    documented = set(re.findall(r"^\| `(dragoman_\w+)`", PAGE, re.M))
    assert {name.removesuffix("_bucket") for name in names} <= documented
