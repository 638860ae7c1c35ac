"""/metrics: what it counts of requests, as Prometheus' own parser reads it, and what it says to nobody."""

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
    """By name; every family must have a help text and a type, and no series may be there twice."""
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
    """Of the series with these labels, all together."""
    return sum(s.value for s in found.get(name, ()) if labels.items() <= s.labels.items())


def by(found: dict[str, list[Sample]], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """What has happened, by these labels."""
    return {tuple(s.labels[label] for label in labels): s.value for s in found.get(name, ()) if s.value}


def offering(path: str, stream: bool = True, tools: Iterable[str] = ("search", "look")) -> dict[str, object]:
    """A request for `m` that offers these, each with a number of days, which must be there."""
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


# What is counted


async def test_requests_tokens_calls_and_warnings() -> None:
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


async def test_whatever_it_is_asked_by_a_model_has_one_name() -> None:
    """Its own, an alias of the settings, of the backend, and the name under which one API lists it."""
    async with served(plain) as s, s.client() as client:
        for name in ("m", "n", "alias", dialects.get("anthropic_messages").display_name("m")):
            answer = await client.post(MESSAGES, json=body() | {"model": name})
            assert answer.status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model") == {("m",): 4}


async def test_an_alias_of_several_models_is_one_of_its_own() -> None:
    gateway = Gateway([Scripted(plain, ["a", "b"])], {"either": ("a", "b")})
    async with serving(gateway) as (_, url), http_client(url) as client:
        await client.post(CHAT, json=body() | {"model": "either"})
        found = await scraped(url)
    assert by(found, "dragoman_requests_total", "model") == {("either",): 1}


async def test_what_fails_is_told_by_the_name_of_the_error() -> None:
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


async def test_tokens_that_are_only_counted_are_no_answer() -> None:
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


async def test_those_in_flight_and_those_whose_client_left() -> None:
    async with served(waiting) as s:
        _, leaving = await s.raw(CHAT)
        await s.backend.begun.wait()
        assert value(await scraped(s.url), "dragoman_requests_in_flight") == 1
        leaving.close()
        await s.backend.over.wait()
        found = await scraped(s.url)
        while value(found, "dragoman_requests_in_flight"):  # the backend is stopped a moment before the request is over
            found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model", "status") == {("m", "499"): 1}


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_passed_on_unread(stream: bool) -> None:
    """Tokens are known; calls are where the answer came whole, and nobody has checked them."""
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


# What became of calls


def ended(*ends: ToolCallEnd, warnings: Sequence[str] = ()) -> dict[str, list[Sample]]:
    """What is told after one answer with these calls of `search`."""
    return told(*(one for n, end in enumerate(ends) for one in (ToolCallStart(n, "id", "search"), end)), codes=warnings)


def told(
    *events: AnyEvent, codes: Sequence[str] = (), offered: Iterable[str] | None = None, metrics: Metrics | None = None
) -> dict[str, list[Sample]]:
    """What is told after one answer with these events; offered were the tools that it calls, if no others are named."""
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
def test_each_call_has_one_outcome(end: ToolCallEnd, outcome: str) -> None:
    assert by(ended(end), CALLS, "model", "tool", "outcome") == {("m", "search", outcome): 1}


def test_what_has_not_happened_is_nought() -> None:
    """So that a share of it can be told: Prometheus has none of what is not there."""
    found = ended(ToolCallEnd(0, (), False))
    assert {s.labels["outcome"]: s.value for s in found[CALLS]} == dict.fromkeys(OUTCOMES, 0) | {"invalid": 1}


def test_names_that_models_make_up_are_no_tools() -> None:
    found = told(ToolCallStart(0, "id", "made up"), ToolCallEnd(0, (), False), codes=["invalid_call"], offered=["look"])
    assert by(found, CALLS, "tool", "outcome") == {("", "unknown"): 1}


def test_each_step_of_mending_counts() -> None:
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
def test_a_call_of_which_only_a_warning_tells_has_no_tool(code: str, outcome: str) -> None:
    found = ended(ToolCallEnd(0, (), True), warnings=[code])
    assert by(found, CALLS, "tool", "outcome") == {("search", "valid"): 1, ("", outcome): 1}
    assert outcome in FAILED


def test_an_invalid_call_that_went_out_is_not_counted_again_by_its_warning() -> None:
    found = ended(ToolCallEnd(0, (), False), warnings=["invalid_call"])
    assert by(found, CALLS, "tool", "outcome") == {("search", "invalid"): 1}


def test_the_page_tells_of_each_outcome() -> None:
    section = PAGE.partition("## What becomes of a call")[2].partition("## ")[0]
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
async def test_what_the_guard_made_of_a_call(path: str, answers: list[str], outcome: str, codes: set[str]) -> None:
    """From what the model writes to what is told, with all that is in between."""

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
async def test_a_call_that_stays_wrong_is_one_that_failed(stream: bool, buffering: str) -> None:
    """Also where it goes out as words, and is no call of the answer."""
    async with served(wrong, policy=GuardPolicy()) as s, s.client() as client:
        headers = {"x-dragoman-buffering": buffering}
        assert (await client.post(CHAT, json=offering(CHAT, stream), headers=headers)).status_code == 200
        found = await scraped(s.url)
    tool = "" if buffering == "all" else "search"
    assert by(found, CALLS, "tool", "outcome") == {(tool, "invalid"): 1}


# Names that clients make up

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


def test_no_name_breaks_the_text() -> None:
    calls = [(ToolCallStart(n, "id", name), ToolCallEnd(n)) for n, name in enumerate(NASTY)]
    found = told(*(event for pair in calls for event in pair))
    assert {labels for (labels,) in by(found, CALLS, "tool")} == {name[:100] for name in NASTY}


async def test_models_that_are_not_served_make_no_series() -> None:
    async with served(plain) as s, s.client() as client:
        for name in [*NASTY, *(f"made up {n}" for n in range(30))]:
            assert (await client.post(CHAT, json=body() | {"model": name})).status_code == 404
        assert (await client.post(CHAT, json=body())).status_code == 200
        found = await scraped(s.url)
    assert by(found, "dragoman_requests_total", "model") == {(OTHER,): len(NASTY) + 30, ("m",): 1}
    assert {s.labels["model"] for group in found.values() for s in group if "model" in s.labels} == {"m", OTHER}


def test_tools_are_bounded() -> None:
    """Whoever offers new tools with each request gets no series of their own any more."""
    metrics = Metrics(Gateway([Scripted(plain)]))
    for batch in range(2):
        calls = [(ToolCallStart(n, "id", f"t{batch}_{n}"), ToolCallEnd(n, ("to_number",), True)) for n in range(300)]
        found = told(*(event for pair in calls for event in pair), metrics=metrics)
    assert value(found, CALLS) == 600
    assert len(by(found, CALLS, "tool")) == 501
    assert value(found, CALLS, tool=OTHER) == 100
    assert value(found, "dragoman_tool_call_repairs_total", tool=OTHER) == 100


class TakesAll(Scripted):
    """A backend that takes any name."""

    def resolve_model_name(self, name: str) -> str | None:
        return name


async def test_models_are_bounded_where_a_backend_takes_any_name() -> None:
    metrics = Metrics(Gateway([TakesAll(plain)]))
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


# Who may see it


async def test_it_takes_the_keys_of_the_rest() -> None:
    async with served(plain, api_keys=("secret-key",)) as s, s.client() as client:
        assert (await client.get("/metrics")).status_code == 401
        assert (await client.get("/metrics", headers={"x-api-key": "wrong"})).status_code == 401
        assert (await client.post(CHAT, json=body())).status_code == 401
        found = await scraped(s.url, authorization="Bearer secret-key")
    assert by(found, "dragoman_failures_total", "model", "error") == {(OTHER, "AuthError"): 1}
    assert "secret" not in str(found)


async def test_it_is_not_for_pages_of_others() -> None:
    async with served(plain) as s, s.client() as client:
        assert (await client.get("/metrics", headers={"host": "evil.example"})).status_code == 403
        assert (await client.get("/metrics", headers={"origin": "https://evil.example"})).status_code == 403
        assert (await client.post("/metrics")).status_code == 405


async def test_it_can_be_turned_off() -> None:
    async with served(plain, metrics=False) as s, s.client() as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.post(CHAT, json=body())).status_code == 200


async def test_each_application_counts_its_own() -> None:
    async with served(plain) as one, served(plain) as other, one.client() as client:
        await client.post(CHAT, json=body())
        assert value(await scraped(one.url), "dragoman_requests_total") == 1
        assert value(await scraped(other.url), "dragoman_requests_total") == 0


async def test_looking_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with served(plain) as s, s.client() as client:
        await client.get("/metrics")
        await client.get("/metrics", headers={"host": "evil.example"})
        await eventually(lambda: caplog.records)
    assert [json.loads(r.message)["status"] for r in caplog.records if r.name == "dragoman.access"] == [403]


# The page


async def test_the_page_tells_of_each_name() -> None:
    """With its type and labels, as they are once everything has happened."""
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
    assert {name: kind for name, (kind, _) in documented.items()} == {name: f.type for name, f in shown.items()}
    seen = {name: set(f.samples[0].labels) - {"le"} for name, f in shown.items() if f.samples}
    assert {name: set(documented[name][1]) for name in seen} == seen
    assert set(documented) - set(seen) == {"dragoman_passthrough_responses_total", "dragoman_tool_call_repairs_total"}


def test_the_questions_ask_for_what_there_is() -> None:
    questions = PAGE.partition("## Questions")[2].partition("## ")[0]
    names = set(re.findall(r"dragoman_\w+", questions))
    documented = set(re.findall(r"^\| `(dragoman_\w+)`", PAGE, re.M))
    assert {name.removesuffix("_bucket") for name in names} <= documented
