"""/metrics of several processes: each returns the sums, also while processes are killed and replaced."""

import asyncio
import json
import textwrap
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman import dialects
from dragoman.config.server import ServerConfig
from dragoman.core.events import Finish, Notice, Start, ToolCallEnd, ToolCallStart, UsageUpdate
from dragoman.core.messages import Usage
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.base_exchange import Route
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.metrics import Metrics
from dragoman.server.observe.value_file import ValueFile, read_rows
from support.gateway import CHAT
from support.processes import python_process
from support.scripted_backend import Scripted, body, plain

REQUESTS, IN_FLIGHT, UP = "dragoman_requests_total", "dragoman_requests_in_flight", "dragoman_backend_up"


class LongRequest(AccessRecord):
    """A request of 7.5 seconds."""

    @property
    def seconds(self) -> float:
        return 7.5


def finish_request(metrics: Metrics, tool: str = "search") -> None:
    """Counts a request with a repaired call."""
    dialect = dialects.get("openai_chat")
    record = LongRequest("POST", CHAT)
    request = dialect.read_request(json.dumps(body()))
    record.on_request(dialect.name, request)
    for event in (
        Start("", "m", 0),
        ToolCallStart(0, "id", tool),
        ToolCallEnd(0, ("to_number",), True),
        Notice("call_repaired", "secret"),
        UsageUpdate(Usage(30, 12)),
        Finish("stop"),
    ):
        record.observe(event)
    record.status = 200
    metrics.finish(Route(dialect), record)


def values(text: str) -> dict[tuple[str, str], float]:
    """Returns the value of each series."""
    families = list(text_string_to_metric_families(text))
    return {(s.name, str(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def total(text: str, name: str) -> float:
    return sum(value for (sample, _), value in values(text).items() if sample == name)


class State(Scripted):
    """A backend whose state the test sets."""

    is_ready = True

    def health(self) -> Mapping[str, object]:
        return {"backend": "scripted", "ready": self.is_ready}


def metrics_of(folder: Path | None) -> tuple[Metrics, State]:
    backend = State(plain)
    return Metrics(Gateway([backend]), folder), backend


async def scraped(metrics: Metrics) -> str:
    return (await metrics.text()).decode()


async def test_shared_metrics_of_one_process_equal_its_own(tmp_path: Path) -> None:
    """The same text, apart from the time of the start."""
    texts = []
    for folder in (None, tmp_path):
        metrics, _ = metrics_of(folder)
        metrics.begin()
        metrics.begin()
        finish_request(metrics)
        texts.append(await scraped(metrics))
    own, shared = ({line for line in text.splitlines() if "start_time_seconds " not in line} for text in texts)
    assert shared == own
    assert total(texts[1], "dragoman_answer_duration_seconds_sum") == 7.5
    assert total(texts[1], IN_FLIGHT) == 1


async def test_each_process_returns_the_sums(tmp_path: Path) -> None:
    (one, state), (two, _) = metrics_of(tmp_path), metrics_of(tmp_path)
    for metrics in (one, one, two):
        metrics.begin()
    finish_request(one)
    for n in range(200):  # over the first size of a file
        two.begin()
        finish_request(two, f"tool {n}" * 5)
    state.is_ready = False
    first, second = await scraped(one), await scraped(two)
    assert (total(first, REQUESTS), total(first, IN_FLIGHT), total(first, UP)) == (201, 2, 0)
    assert values(first) == values(second), "also which backends are ready"
    assert first.count("dragoman_build_info{") == 1
    assert total(first, "dragoman_answer_duration_seconds_count") == 201
    assert total(first, "dragoman_tool_call_repairs_total") == 201


async def test_state_of_backends_is_published_without_requests(tmp_path: Path) -> None:
    (one, state), (two, _) = metrics_of(tmp_path), metrics_of(tmp_path)
    one.begin()
    assert total(await scraped(two), UP) == 1
    state.is_ready = False
    async with asyncio.timeout(30):
        while total(await scraped(two), UP):
            await asyncio.sleep(0.005)


async def test_metrics_over_http_are_those_of_all_processes(tmp_path: Path) -> None:
    apps = [App(Gateway([Scripted(plain)]), ServerConfig(), shared_dir=tmp_path) for _ in range(2)]
    one, two = (httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") for app in apps)
    async with one, two:
        for client in (one, two, two):
            assert (await client.post(CHAT, json=body())).status_code == 200
        texts = [(await client.get("/metrics")).text for client in (one, two)]
    assert [total(text, REQUESTS) for text in texts] == [3, 3]


WORKER = textwrap.dedent("""
    import asyncio, json, sys
    from pathlib import Path
    from dragoman import dialects
    from dragoman.core.events import Finish, Start
    from dragoman.gateway.gateway import Gateway
    from dragoman.server.base_exchange import Route
    from dragoman.server.observe.access_log import AccessRecord
    from dragoman.server.observe.metrics import Metrics
    from support.scripted_backend import Scripted, body, plain

    async def main():
        metrics, dialect = Metrics(Gateway([Scripted(plain)]), Path(sys.argv[1])), dialects.get("openai_chat")
        request = dialect.read_request(json.dumps(body()))
        print("ready", flush=True)
        for _ in range(int(sys.stdin.readline())):
            metrics.begin()
            record = AccessRecord("POST", dialect.path)
            record.on_request(dialect.name, request)
            record.observe(Start("", "m", 0))
            record.observe(Finish("stop"))
            record.status = 200
            metrics.finish(Route(dialect), record)
            print("counted", flush=True)
        metrics.begin()
        print("in flight", flush=True)
        sys.stdin.readline()

    asyncio.run(main())
""")


async def test_counts_of_killed_processes_remain_and_never_go_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(request.config.rootpath / "tests"))
    metrics, _ = metrics_of(tmp_path)
    began = values(await scraped(metrics))["dragoman_start_time_seconds", "[]"]
    reported, scrapes, expected = 0, [0.0], 0
    for _ in range(3):  # each time two processes, which continue the files of the two before
        with ExitStack() as stack:
            killed, idle = (stack.enter_context(python_process(WORKER, tmp_path)) for _ in range(2))
            assert (killed.read(), idle.read()) == ("ready", "ready")
            killed.write("100000")
            idle.write("10")
            for _ in range(200):
                assert killed.read() == "counted"
                scrapes.append(total(await scraped(metrics), REQUESTS))
            assert [idle.read() for _ in range(11)] == ["counted"] * 10 + ["in flight"]
            assert total(await scraped(metrics), IN_FLIGHT) in (1, 2)
            killed.kill()
            reported += 200 + len(killed.rest()) + 10
            expected = total(text := await scraped(metrics), REQUESTS)
            scrapes.append(expected)
            assert total(text, IN_FLIGHT) == 1, "the request of the killed process has ended"
    assert scrapes == sorted(scrapes)
    assert reported <= expected <= reported + 3, "of each killed process one may not have been printed"
    text = await scraped(metrics)
    assert total(text, IN_FLIGHT) == 0
    assert values(text)["dragoman_start_time_seconds", "[]"] == began
    assert len(list((tmp_path / "metrics").glob("*.values"))) <= 3


def test_file_is_readable_while_it_grows(tmp_path: Path) -> None:
    file = ValueFile(tmp_path / "file")
    for n in range(3000):
        file.set(file.append((f"name {n}", "label" * (n % 50)), 1 + n % 3), n)
        if n % 500 == 0:
            assert [row.values[0] for row in read_rows(tmp_path / "file")] == list(range(n + 1))
    continued = ValueFile(tmp_path / "file")
    assert [row.key[0] for row in continued.rows()] == [f"name {n}" for n in range(3000)]
    assert [row.values[0] for row in continued.rows()] == list(range(3000))
    (tmp_path / "empty").touch()
    assert list(read_rows(tmp_path / "empty")) == []


REWRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from dragoman.server.observe.value_file import ValueFile

    file = ValueFile(Path(sys.argv[1]))
    offset = file.append(("requests",), 1)
    file.set(offset, 7.0)
    print("ready", flush=True)
    while True:
        file.set(offset, 7.0)
""")


def test_other_processes_never_read_number_half_written(tmp_path: Path) -> None:
    """`Struct.pack_into` clears the bytes first: of 100,000 reads, about 20 returned 0."""
    with python_process(REWRITER, tmp_path / "0.values") as writer:
        assert writer.read() == "ready"
        assert {row.values for _ in range(20_000) for row in read_rows(tmp_path / "0.values")} == {(7.0,)}
