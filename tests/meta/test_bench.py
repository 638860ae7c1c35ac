"""Every benchmark runs with tiny sizes and measures what it claims; the speed of this machine is not tested.

Benchmarks that need other programs: tests/e2e/servers/test_benchmarks.py.
"""

import asyncio
import dataclasses
import gc
import importlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from bench import client, compare, instructions, micro, tool_search
from bench.__main__ import ALONE, BENCHMARKS, main
from bench.figures import Figure, table
from bench.samples import DIALECTS, agent_body, small_body
from bench.server import AT_ONCE, UNBUFFERED, Floor, ScriptedBackend

from dragoman import dialects
from dragoman.config.server import ServerConfig
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from support import bench_figures


@pytest.fixture(autouse=True)
def small_heap() -> Iterator[None]:
    """Benchmarks collect garbage hundreds of times, which takes minutes with the objects of other tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in (*ALONE, "tokens")])
def test_benchmark_returns_plausible_figures(name: str) -> None:
    if name == "field":
        pytest.importorskip("llm_router_utils", reason="`make bench-parts` installs the field")
    bench_figures.check(name, importlib.import_module(f"bench.{name}").measure(quick=True))


def test_tokens_benchmark_returns_plausible_figures(tmp_path: Path) -> None:
    """Runs in a separate process, as the vocabularies need much memory."""
    file = tmp_path / "figures.json"
    subprocess.run([sys.executable, "-m", "bench", "tokens", "--quick", "--json", file], cwd=client.ROOT, check=True)
    names = {field.name for field in dataclasses.fields(Figure)}
    figures = [
        Figure(**{name: value for name, value in figure.items() if name in names})
        for figure in json.loads(file.read_text())["figures"]
    ]
    bench_figures.check("tokens", figures)


def test_table_marks_figures_over_their_goal() -> None:
    lines = table([("x", [Figure("slow", 2.0, "µs", goal=1.0), Figure("fast", 1.0, "µs", goal=1.0)])]).splitlines()
    assert [line.split()[-1] for line in lines[2:]] == ["over", "ok"]


def test_bench_command_prints_table_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["bench", "wire", "--quick", "--json", str(file)])
    main()
    assert "[wire]" in capsys.readouterr().out
    figures = json.loads(file.read_text())["figures"]
    assert {"benchmark", "name", "value", "unit", "ratio", "goal", "verdict"} <= set(figures[0])


def test_benchmarks_cover_every_dialect() -> None:
    assert set(DIALECTS) == set(dialects.names())


@pytest.mark.parametrize("name", DIALECTS)
def test_agent_body_has_documented_size(name: str) -> None:
    body = agent_body(name)
    request = dialects.get(name).read_request(body)
    assert 90_000 < len(body) < 120_000
    assert (len(request.tools), len(request.messages)) == (20, 30)


async def sent_chunks(app: App | Floor, path: str, body: bytes) -> list[bytes]:
    """The body chunks that the application sends."""
    sent: list[bytes] = []
    asked = [{"type": "http.request", "body": body}]

    async def receive() -> MutableMapping[str, Any]:
        if asked:
            return asked.pop()
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])

    never = asyncio.Event()
    scope = {"type": "http", "path": path, "method": "POST", "headers": [(b"host", b"localhost")]}
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("model", ["alone", "burst", "call-alone", "call-burst"])
async def test_floor_and_gateway_send_equal_chunks(name: str, model: str) -> None:
    """Both send the same number of chunks and bytes: single deltas stay single, and a burst is sent at once."""
    path, count = dialects.get(name).path, 40
    body = small_body(name, model, stream=True, max_tokens=count)
    ours = await sent_chunks(App(Gateway([ScriptedBackend()], policy=UNBUFFERED), ServerConfig()), path, body)
    floor = await sent_chunks(Floor(), path, body)
    assert abs(len(ours) - len(floor)) <= 1
    assert [len(w) for w in ours if w][1:-1] == [len(w) for w in floor if w][1:-1]
    expected = count / (AT_ONCE if model.endswith("burst") else 1)
    # The reader buffers text that may become a tag, so not every delta of a call is sent.
    assert expected * (0.5 if model.startswith("call") else 1) <= len(ours) <= expected + 3
    called = (b'"tool_calls":', b'"tool_use"', b'"function_call"')
    assert any(word in b"".join(ours) for word in called) == model.startswith("call")


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="the proxy benchmark needs Linux's /proc and a C compiler"
)
def test_proxy_benchmark_measures_each_scenario(tmp_path: Path) -> None:
    """Of the contenders, those that need no other package; tests/e2e/servers/test_benchmarks.py measures all."""
    from bench.proxies import contenders, report, rounds
    from bench.proxies.scenarios import SCENARIOS

    quick = (*contenders.OURS, contenders.NGINX, contenders.BARE)
    chosen = [one for one in contenders.CONTENDERS if one.program() and one.name in quick]
    results = rounds.measure(chosen, 1, is_quick=True)
    names = {one.name for one in chosen}
    assert {contenders.PASSTHROUGH, contenders.PARSED, contenders.TRANSLATED} < names
    assert results.memory.keys() == names
    assert results.cpu.keys() == {rounds.Cell(scenario.name, name) for scenario in SCENARIOS for name in names}
    bench_figures.check("proxies", report.figures(results))
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n\n{report.BEGIN}\n\n{report.END}\n\nAfter.\n")
    report.write(page, "old")
    report.write(page, report.markdown(results, {"nginx": "1"}))
    text = page.read_text()
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "old" not in text
    assert all(f"\n| {name} | " in text for name in names)
    page.write_text("no marks")
    with pytest.raises(ValueError, match="at least one is missing"):
        report.write(page, "")


COUNTS = {"request": 100.0, "delta": 10.0}


@pytest.mark.parametrize(
    ("counts", "failed", "message"),
    [
        (COUNTS, False, "+0.0 %"),
        ({**COUNTS, "delta": 10.4}, False, "+4.0 %"),
        ({**COUNTS, "delta": 10.6}, True, "more than 5 % above the recorded count: ['delta']"),
        ({**COUNTS, "delta": 5.0}, False, "-50.0 %"),
        ({**COUNTS, "other": 1.0}, True, "recorded and counted scenarios differ: ['other']"),
    ],
)
def test_instruction_check_fails_above_recorded_counts(
    tmp_path: Path, counts: dict[str, float], failed: bool, message: str
) -> None:
    file = tmp_path / "instructions.toml"
    instructions.record(COUNTS, file)
    text, is_failed = instructions.compare(counts, file)
    assert is_failed == failed
    assert message in text


def test_instruction_check_only_reports_with_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "instructions.toml"
    instructions.record(COUNTS, file)
    monkeypatch.setattr(instructions, "versions", lambda: {"python": "2.7"})
    text, failed = instructions.compare({**COUNTS, "delta": 99.0}, file)
    assert not failed
    assert "only reported: the counts were recorded with other versions" in text
    assert "+890.0 %" in text


SCENARIOS = ("request", "delta")


def comparison(*percents: tuple[float, float]) -> list[str]:
    """The report on rounds in which the second commit took so many percent more for a request and for a delta."""
    first = dict.fromkeys(SCENARIOS, 200.0)
    rounds = [
        (first, {name: 200 + 2 * percent for name, percent in zip(SCENARIOS, each, strict=True)}) for each in percents
    ]
    return list(compare.report(compare.changes(rounds)))


def test_commit_comparison_names_scenario_with_more_instructions() -> None:
    *rows, end = comparison((3.0, 0.2), (2.8, -0.4))
    assert end == "more: request (+2.9 %)"
    assert rows[1].split() == ["request", "200", "205.8", "+2.9", "%", "+3.0", "+2.8", "more"]
    assert rows[2].split() == ["delta", "200", "199.8", "-0.1", "%", "+0.2", "-0.4"]


def test_commit_comparison_names_scenarios_of_each_direction() -> None:
    assert comparison((-9.0, 5.0), (-11.0, 5.0))[-2:] == ["more: delta (+5.0 %)", "less: request (-10.0 %)"]


@pytest.mark.parametrize(
    "percents", [((0.0, 0.0),), ((0.9, -0.9),), ((3.0, 0.0), (0.5, 0.0)), ((3.0, -3.0), (-3.0, 3.0))]
)
def test_commit_comparison_reports_no_difference_within_noise(percents: tuple[tuple[float, float], ...]) -> None:
    assert comparison(*percents)[-1] == "no difference of 1 % or more"


def test_commit_comparison_checks_commit_out_and_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(compare, "ROOT", tmp_path)
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    git("init", "--quiet")
    for text in ("old", "new"):
        file.write_text(text)
        git("add", ".")
        git("commit", "--quiet", "--message", text)
    with compare.source_of("HEAD~1") as source:
        assert (source / "a.py").read_text() == "old"
        assert str(source.parent) in git("worktree", "list")
    assert not source.parent.exists()
    assert len(git("worktree", "list").splitlines()) == 1
    with compare.source_of("") as source:
        assert (source / "a.py").read_text() == "new"


@pytest.mark.parametrize("name", micro.work_by_name())
def test_counted_work_runs(name: str) -> None:
    work = micro.work_by_name()[name]
    work.call()
    assert work.units > 400


def test_tool_search_benchmark_finds_tools_and_saves_tokens() -> None:
    lines = [*tool_search.figures()]
    first, among = re.findall(r"(\d+) (?:of 20|among)", lines[1])
    assert 12 <= int(first) <= int(among) <= 20
    tokens = [int(line.split()[0]) for line in lines if "tokens, estimated" in line]
    assert tokens[0] > 8 * tokens[2]
    assert tokens[2] < tokens[3] < tokens[4]
    assert lines[-2].strip().startswith("100.0 %")
