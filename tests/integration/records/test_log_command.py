"""`dragoman log`: lists, filters and follows exchanges, and shows one of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import cli
from dragoman.records.config import RecordsConfig
from dragoman.records.record import CallKind, ExchangeRecord, Series
from dragoman.records.writer import RecordWriter
from support.capturing import keeping, kept, says
from support.gateway import command, environment
from support.http_client import http_client
from support.sample_records import START_S, fill

READ, EDIT, BROKEN = (
    CallKind("read", "valid"),
    CallKind("edit", "repaired", "quotes,commas"),
    CallKind("edit", "invalid"),
)
RECORDS = [
    ExchangeRecord(
        START_S,
        "aa" * 12,
        Series("1.0.0", "openai_chat", "alice", "codex", "main", "default", "default", "cloud", "gpt", status=200),
        [(READ, 2), (EDIT, 1)],
        session="s1",
        input_tokens=12_345,
        output_tokens=67,
        total_ms=1_500,
        captured="20241004T000000.000Z-req_aaaa",
    ),
    ExchangeRecord(
        START_S + 60,
        "ab" * 12,
        Series(
            "1.0.0", "openai_chat", "bob", "opencode", model="qwen", upstream="local", upstream_model="qwen", status=200
        ),
        [(BROKEN, 1)],
        warnings=["invalid_call: edit"],
        total_ms=20,
    ),
    ExchangeRecord(
        START_S + 120,
        "bb" * 12,
        Series(
            "1.0.0", "openai_chat", "bob", "opencode", model="qwen", upstream="local", status=502, error="UpstreamError"
        ),
        attempts=2,
        failed_attempts=[("cloud", "status 500"), ("local", "refused \x1b[31m")],
        error_message="the server responded with status 500",
    ),
]
Log = Callable[..., str]


@pytest.fixture(scope="module")
def url(empty_url: str) -> str:
    fill(empty_url, RECORDS)
    return empty_url


@pytest.fixture
def log(url: str, capsys: pytest.CaptureFixture[str]) -> Log:
    def run(*options: str, status: int = 0) -> str:
        assert cli.main(["log", "--records", url, *options]) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    return run


def ids(output: str) -> list[str]:
    return [json.loads(line)["id"].removeprefix("req_")[:2] for line in output.splitlines()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["aa", "ab", "bb"]),
        (("--limit", "2"), ["ab", "bb"]),
        (("--limit", "0"), []),
        (("--model", "qwen"), ["ab", "bb"]),
        (("--model", "gpt"), ["aa"]),
        (("--upstream", "lo*"), ["ab", "bb"]),
        (("--agent", "codex"), ["aa"]),
        (("--key", "bob", "--status", "2*"), ["ab"]),
        (("--status", "502"), ["bb"]),
        (("--tool", "edit"), ["aa", "ab"]),
        (("--tool", "re?d"), ["aa"]),
        (("--failed",), ["ab", "bb"]),
        (("--failed", "--tool", "edit"), ["ab"]),
        (("--since", "2024-10-04T00:01"), ["ab", "bb"]),
        (("--since", "now"), []),
        (("--model", "other"), []),
    ],
)
def test_filters(log: Log, options: tuple[str, ...], expected: list[str]) -> None:
    assert ids(log("--json", *options)) == expected


def test_json_has_all_that_is_known(log: Log) -> None:
    first, _, last = (json.loads(line) for line in log("--json").splitlines())
    assert first["id"] == "req_" + "aa" * 12
    assert first["ended_s"] == START_S
    assert first["calls"] == [
        {"tool": "edit", "outcome": "repaired", "repairs": ["quotes", "commas"], "count": 1},
        {"tool": "read", "outcome": "valid", "repairs": [], "count": 2},
    ]
    assert (first["input_tokens"], first["session"], first["alias"]) == (12_345, "s1", "default")
    assert "error" not in first
    assert last["failed_attempts"][0] == ["cloud", "status 500"]


def test_table_names_what_failed(log: Log) -> None:
    head, first, second, third = log().splitlines()
    assert head.split()[:3] == ["TIME", "(UTC)", "ID"]
    assert first.split() == [
        *(
            "2024-10-04",
            "00:00:00",
            "aaaaaaaaaa",
            "200",
            "1.50",
            "s",
            "12,345",
            "67",
            "3",
            "alice",
            "codex",
            "gpt",
            "cloud",
        )
    ]
    assert second.endswith("edit invalid")
    assert third.endswith(r"UpstreamError, cloud: status 500, local: refused \x1b[31m")


@pytest.mark.parametrize("id", ["aa", "req_aa", "req_" + "aa" * 12])
def test_one_exchange_is_shown(log: Log, id: str, tmp_path: Path) -> None:
    shown = log(id, "--captures", str(tmp_path))
    assert "edit: repaired (quotes, commas)" in shown
    assert "read: valid x2" in shown
    assert "key alice" in shown
    assert f"dragoman replay {tmp_path}/20241004T000000.000Z-req_aaaa" in shown
    assert json.loads(log(id, "--json"))["session"] == "s1"


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("cc",), 1, "expected the id of a recorded exchange, got 'cc'; see: dragoman log"),
        (("a",), 1, "'a' is the beginning of several ids: abab"),
        (("%",), 1, "got '%'"),
        (("bb", "--replay"), 2, "was not captured; `dragoman serve --capture DIR` captures"),
        (("aa", "--replay"), 2, "name the folder of the captures: --captures DIR"),
        (("aa", "--replay", "--captures", "no"), 2, "in no/20241004T000000.000Z-req_aaaa, got no such folder"),
        (("--replay",), 2, "name it: dragoman log ID --replay"),
        (("aa", "-f"), 2, "--follow is for the list"),
        (("--limit", "-1"), 2, "got -1 - at --limit"),
        (("--since", "soon"), 2, "got 'soon' - at --since"),
    ],
)
def test_wrong_options_are_explained(log: Log, options: tuple[str, ...], status: int, message: str) -> None:
    assert message in log(*options, status=status)


def test_missing_database_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["log", "--records", f"sqlite:///{tmp_path}/none.sqlite"]) == 1
    assert f"{tmp_path}/none.sqlite, got no such file" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="ends the command by a signal")
def test_new_exchanges_are_followed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    fill(url, RECORDS)
    line = command("log", "--records", url, "--json", "-f", "--limit", "1", "--model", "new")
    process = subprocess.Popen(line, env=environment(tmp_path), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        fill(url, [new_record("c0", time.time() - 1)])
        first: dict[str, Any] = json.loads(process.stdout.readline())  # in the list or as a new one
        fill(url, [new_record("c1", time.time()), RECORDS[0].__class__(time.time(), "d" * 24)])
        fill(url, [new_record("c2", time.time() - 20)])  # of another process, which writes later
        following = [json.loads(process.stdout.readline())["id"] for _ in range(2)]
        assert [first["id"][4:6], *sorted(id[4:6] for id in following)] == ["c0", "c1", "c2"]
    finally:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        process.stdout.close()


def new_record(id: str, ended_s: float) -> ExchangeRecord:
    return ExchangeRecord(ended_s, id * 12, Series(model="new", status=200))


async def test_captured_exchange_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, captures = f"sqlite:///{tmp_path}/records.sqlite", tmp_path / "captures"
    writer = RecordWriter(RecordsConfig(url=url), batch_delay_s=0)
    async with keeping(captures, says("Hello."), {"records": writer}) as gateway, http_client(gateway) as client:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hi."}]}
        answer = await client.post("/v1/chat/completions", json=body)
        (folder,) = await kept(captures)
    await asyncio.to_thread(writer.close)

    def log(*options: str) -> str:
        id = answer.headers["x-request-id"]
        assert cli.main(["log", id, "--records", url, "--captures", str(captures), *options]) == 0
        return capsys.readouterr().out

    assert f"dragoman replay {folder}" in await asyncio.to_thread(log)
    replayed = await asyncio.to_thread(log, "--replay")
    assert replayed.startswith(folder.name)
    assert "differs" not in replayed
