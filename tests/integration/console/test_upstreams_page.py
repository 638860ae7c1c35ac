"""Upstreams as the console's API answers with them: state, failures, and probes with their evidence."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import cache, evidence
from dragoman.backends.probe.report import ProbeFinding, ProbeReport, Recommendation
from dragoman.config import Config
from dragoman.console.upstreams.failures import PERIOD_S, recent_failures
from dragoman.console.upstreams.probes import stored_probes
from dragoman.console.upstreams.state import upstream_view
from dragoman.console.upstreams.views import FailureView
from dragoman.gateway.gateway import Gateway
from dragoman.records.config import RecordsConfig
from dragoman.records.record import ExchangeRecord, Series
from support.console import API, CHANGE, ServedConsole, served_console
from support.fake_upstream import ask, server, whole
from support.gateway import CHAT
from support.ports import free_port
from support.probe_upstream import leaks
from support.sample_records import fill
from support.scripted_backend import Scripted, plain
from support.stub_servers import NOTHING_HERE, Answer, models, odd


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))


def leaking(path: str, asked: dict[str, Any]) -> Answer:
    """A server with one model, which leaves its calls in the text."""
    if path == "/v1/models":
        return models("m")
    return leaks(asked) if path == CHAT else NOTHING_HERE


FAILURE = FailureView(ended_s=1.0, id="req_1", model="m", reason="UpstreamError: 500", answered=False)


async def upstreams(console: ServedConsole) -> list[dict[str, Any]]:
    response = await console.get("/upstreams")
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["upstreams"]
    return found


async def events(console: ServedConsole, path: str, body: object) -> AsyncIterator[tuple[str, Any]]:
    """Names and values of the events that answer a change."""
    name = ""
    async with console.client.stream("POST", f"{API}{path}", json=body, headers=CHANGE) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def backend(name: str, url: str, **settings: Any) -> HttpBackend:
    config = HttpConfig(url=f"{url}/v1", **{"models": ("m",), "max_retries": 0, **settings})
    return HttpBackend(name, config, {}, may_recall=True)


async def test_failing_upstream_has_its_state_and_its_failures() -> None:
    far = backend("far", f"http://127.0.0.1:{free_port()}", api_key="a-secret-key", max_concurrency=3)
    async with served_console(Gateway([far, Scripted(plain)])) as console:
        (before, scripted) = await upstreams(console)
        assert (before["kind"], before["state"], before["breaker"]) == ("http", "ready", "closed")
        assert (before["max_concurrency"], before["models"], before["modes"]) == (3, ["m"], [])
        assert (scripted["kind"], scripted["can_probe"], scripted["breaker"]) == ("other", False, "")
        for _ in range(5):
            await ask(console.url, CHAT, False)
        response = await console.get("/upstreams")
        after = response.json()["upstreams"][0]
        assert (after["state"], after["breaker"]) == ("failing", "open")
        assert "one request tests it" in after["explanation"]
        assert "a-secret-key" not in response.text
        assert response.json()["has_records"] is False
        assert [mode["model"] for mode in after["modes"]] == ["m"]


async def test_failures_of_the_records_and_of_the_last_seconds_are_listed_once(tmp_path: Path) -> None:
    config = RecordsConfig(url=f"sqlite:///{tmp_path}/records.db")
    earlier = ExchangeRecord(
        time.time() - 60,
        "e1",
        Series(model="alias", upstream="far", upstream_model="m", status=200),
        attempts=2,
        failed_attempts=[("far", "UpstreamError: 500"), ("other", "UpstreamError: 503")],
    )
    old = msgspec.structs.replace(earlier, ended_s=time.time() - 2 * PERIOD_S, id="e0")
    good = msgspec.structs.replace(earlier, id="e2", failed_attempts=None)
    fill(config.url, [old, earlier, good])
    latest = msgspec.structs.replace(
        earlier, ended_s=time.time(), id="e3", series=Series(model="m", upstream="far", error="UpstreamError")
    )
    found = recent_failures(Config(records=config), [latest, earlier], time.time())
    assert [(each.id, each.model, each.answered) for each in found["far"]] == [
        ("req_e3", "", False),
        ("req_e1", "m", True),
    ]
    assert [(each.id, each.model, each.reason) for each in found["other"]] == [
        ("req_e3", "m", "UpstreamError: 503"),
        ("req_e1", "alias", "UpstreamError: 503"),
    ]
    assert recent_failures(Config(records=RecordsConfig(enabled=False)), [], time.time()) == {}


async def test_server_without_models_is_unavailable_and_one_at_its_limit_is_limited() -> None:
    spent = whole(429, '{"error": {"message": "quota"}}', **{"retry-after": "3000"})
    async with server(spent) as behind, odd(lambda path, asked: NOTHING_HERE) as empty:
        limited, none = backend("limited", behind.url), backend("none", empty.url, models=())
        async with served_console(Gateway([limited, none])) as console:
            await ask(console.url, CHAT, False)
            first, second = await upstreams(console)
            assert (first["state"], first["quota"][0]["model"]) == ("limited", "m")
            assert first["quota"][0]["seconds"] > 2000
            assert second["state"] == "unavailable"
            assert upstream_view(none, Config(), [FAILURE]).state == "unavailable"
            ready = upstream_view(backend("far", behind.url), Config(), [FAILURE])
            assert (ready.state, ready.explanation.endswith(FAILURE.reason)) == ("ready", True)
            assert "upstreams.none.models" in second["explanation"]


async def test_probe_puts_its_result_in_force_and_shows_its_evidence() -> None:
    async with odd(leaking) as behind:
        far = backend("far", behind.url, auto_probe=False, models=())
        async with served_console(Gateway([far])) as console:
            (before,) = await upstreams(console)
            assert before["probes"] == []
            seen = [event async for event in events(console, "/upstreams/far/probe", {})]
            names = [name for name, _ in seen]
            assert names == ["progress"] * (len(names) - 1) + ["result"]
            assert seen[0][1] == {"what": "answers", "number": 1, "count": len(names) - 1}
            result = seen[-1][1]
            assert (result["tool_mode"], "the format hermes reads" in result["why"]) == ("parse", True)
            finding = next(each for each in result["findings"] if each["what"] == "tool calls")
            assert (finding["verdict"], {"name": "leaked", "value": "hermes"} in finding["facts"]) == ("no", True)
            assert result["settings"].startswith(f'[upstreams.far]\nurl = "{behind.url}/v1"\n')
            (after,) = await upstreams(console)
            assert after["probes"] == [result]
            assert [(mode["tool_mode"], mode["is_auto"]) for mode in after["modes"]] == [("parse", True)]


async def test_probe_of_the_gateway_itself_has_its_evidence_too() -> None:
    async with odd(leaking) as behind:
        config = HttpConfig(url=f"{behind.url}/v1", models=("m",), auto_probe=True)
        far = HttpBackend("far", config, {}, may_probe=True)
        async with served_console(Gateway([far])) as console:
            await ask(console.url, CHAT, False)
            assert far.auto_mode is not None
            await far.auto_mode.wait_idle()
            (after,) = await upstreams(console)
    (found,) = after["probes"]
    assert (found["tool_mode"], after["modes"][0]["tool_mode"]) == ("parse", "parse")
    assert "tool calls" in [finding["what"] for finding in found["findings"]]


async def test_provider_of_a_stored_probe_is_named_before_the_first_request() -> None:
    far = backend("far", "http://127.0.0.1:1", auto_probe=False)
    cache.store(far.config, "m", "vllm", "f", Recommendation("native", "its own tool calls come"))
    async with served_console(Gateway([far])) as console:
        (view,) = await upstreams(console)
    assert (view["provider"], view["title"]) == ("vllm", "vLLM")


async def test_probe_that_cannot_run_says_why() -> None:
    dead = backend("dead", f"http://127.0.0.1:{free_port()}")
    async with served_console(Gateway([dead, Scripted(plain)])) as console:
        ((name, value),) = [event async for event in events(console, "/upstreams/dead/probe", {"model": "m"})]
        assert (name, value["error"]["code"]) == ("error", "failed")
        assert "is the server running?" in value["error"]["message"]
        unknown = await console.change("POST", "/upstreams/ded/probe", {})
        assert (unknown.status_code, "did you mean 'dead'?" in unknown.text) == (404, True)
        other = await console.change("POST", "/upstreams/scripted/probe", {})
        assert (other.status_code, "is not one and needs no probe" in other.text) == (400, True)
        assert (await console.get("/upstreams/dead/probe")).status_code == 404


def test_stored_report_has_no_secret_and_a_result_without_one_is_shown_too(tmp_path: Path) -> None:
    config = HttpConfig(url="http://user:password@127.0.0.1:1/v1", models=("m", "n"))
    choice = Recommendation("native", "its own tool calls come")
    finding = ProbeFinding("answers", "yes", "in 1 s", {"seconds": 1.0})
    values: dict[str, Any] = {"title": "vLLM", "version": "1", "fingerprint": "f", "models": ("m",), "seconds": 2.0}
    report = ProbeReport(
        url=config.url, api="openai_chat", model="m", provider="vllm", findings=(finding,), choice=choice, **values
    )
    evidence.store_report(config, report)
    cache.store(config, "n", "vllm", "f", choice)
    assert all(b"password" not in file.read_bytes() for file in tmp_path.rglob("*.json"))
    first, second = stored_probes("far", config, ["m", "n", "unknown"])
    assert (first.model, first.findings[0].text, first.seconds) == ("m", "in 1 s", 2.0)
    assert (second.model, second.findings, second.title) == ("n", [], "vLLM")
    assert "password" not in first.settings
    (tmp_path / "probe-reports").joinpath(next((tmp_path / "probe-reports").iterdir()).name).write_text("{")
    assert evidence.load_report(config, "m") is None
