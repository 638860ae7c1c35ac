"""`dragoman report`: its numbers, its order, comparisons, files, and what it prints without records."""

import csv
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from dragoman import cli, extras
from dragoman.cli.report.labels import DIMENSIONS as OPTION_DIMENSIONS
from dragoman.records.database import locate, open_for_writing
from dragoman.records.record import CallKind, ExchangeRecord, Series
from dragoman.records.reports.grouping import DIMENSIONS, Grouping
from dragoman.records.reports.period import Period
from support.sample_records import DAY_S, START_S, fill, sample_records, totals_of

RECORDS = list(sample_records(600))
ALL = ("--since", "2024-10-04", "--until", "2024-10-08")
Report = Callable[..., str]


@pytest.fixture(scope="module")
def url(empty_url: str) -> str:
    fill(empty_url, RECORDS)
    return empty_url


@pytest.fixture
def report(url: str, capsys: pytest.CaptureFixture[str]) -> Report:
    def run(*options: str, records: str = url, status: int = 0) -> str:
        assert cli.main(["report", "--records", records, *options]) == status
        captured = capsys.readouterr()
        return captured.err if status else captured.out

    return run


def rows_of(report: str, table: int = 0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(report)["tables"][table]["rows"]
    return rows


def test_option_knows_all_dimensions() -> None:
    assert set(OPTION_DIMENSIONS) == set(DIMENSIONS)


@pytest.mark.parametrize("by", ["model,upstream,format,agent", "day,key", "tool", "model,tool"])
def test_json_has_the_numbers_of_all_groups(report: Report, by: str) -> None:
    grouping = Grouping(tuple(by.split(",")))
    expected = totals_of(RECORDS, Period(START_S, START_S + 4 * DAY_S), grouping)
    rows = rows_of(report("--by", by, *ALL, "--json"))
    assert {tuple(row[name] for name in grouping.by) for row in rows} == set(expected)
    for row in rows:
        totals = expected[tuple(row[name] for name in grouping.by)]
        assert (row["calls"], row["failed"]) == totals.counts
        assert row.get("exchanges", 0) == totals.exchanges
        assert row.get("input_tokens", 0) == totals.input_tokens


def test_rows_are_ordered_by_what_fails(report: Report, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    valid, invalid = CallKind("t", "valid"), CallKind("t", "invalid")
    good = [(Series(model="good"), ((valid, 100),))]
    one_of_two = [(Series(model="one of two"), ((valid, 1), (invalid, 1)))]
    bad = [(Series(model="bad"), ((valid, 60), (invalid, 40)))]
    broken = [(Series(model="broken", status=502, error="UpstreamError"), ((valid, 100),))]
    exchanges = [*good, *one_of_two, *broken, *bad]
    fill(url, [ExchangeRecord(START_S + n, f"{n:024x}", s, c) for n, (s, c) in enumerate(exchanges)])
    rows = rows_of(report("--by", "model", *ALL, "--json", records=url))
    assert [row["model"] for row in rows] == ["bad", "one of two", "broken", "good"]


def test_filters_leave_the_rest_out(report: Report) -> None:
    rows = rows_of(report("--by", "model,agent", "--model", "q*", "--agent", "codex", *ALL, "--json"))
    assert [(row["model"], row["agent"]) for row in rows] == [("qwen", "codex")]


def test_text_has_tables_and_totals(report: Report) -> None:
    text = report(*ALL)
    total = totals_of(RECORDS, Period(START_S, START_S + 4 * DAY_S), Grouping(()))[()]
    assert f"{total.exchanges:,} exchanges, {total.errors:,} with an error" in text
    assert f"{total.calls:,} tool calls, {total.counts.failed:,} failed" in text
    assert text.count("Tool calls by model, upstream, format, agent") == 1
    assert text.count("Exchanges by model, upstream, format, agent") == 1
    assert text.count("Tool calls by model, tool") == 1


def test_limit_shortens_tables(report: Report) -> None:
    assert "the first 2 of 12 rows" in report("--by", "model,tool", *ALL, "--limit", "2")
    assert "of 12 rows" not in report("--by", "model,tool", *ALL, "--limit", "0")


def test_csv_is_read_by_other_programs(report: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(report("--by", "model,day", *ALL, "--csv"))))
    expected = rows_of(report("--by", "model,day", *ALL, "--json"))
    assert rows == [{name: "" if v is None else str(v) for name, v in row.items()} for row in expected]


def test_csv_without_rows_has_the_same_columns(report: Report) -> None:
    filled = report("--by", "model", *ALL, "--csv").splitlines()[0]
    assert report("--by", "model", "--until", "2000-01-02", "--since", "2000-01-01", "--csv").splitlines() == [filled]


def test_parquet_has_the_same_rows(report: Report, tmp_path: Path) -> None:
    from arro3.io import read_parquet

    file = tmp_path / "report.parquet"
    assert report("--by", "model,day", *ALL, "--parquet", str(file)) == ""
    table = read_parquet(file).read_all()
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    read = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert read == rows_of(report("--by", "model,day", *ALL, "--json"))


def test_parquet_needs_its_extra(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: not module.startswith("arro3"))
    message = report("--parquet", str(tmp_path / "x.parquet"), status=2)
    assert "writing Parquet needs more than is installed" in message
    assert "dragoman[" in message
    assert "parquet" in message


def test_unwritable_parquet_file_is_reported(report: Report, tmp_path: Path) -> None:
    assert "no such file or directory - at --parquet" in report("--parquet", str(tmp_path / "no/x.parquet"), status=2)


def test_comparison_with_the_previous_period(report: Report) -> None:
    options = ("--since", "2024-10-06", "--until", "2024-10-08", "--by", "model", "--json")
    rows = rows_of(report(*options, "--compare", "previous"))
    assert [row["side"] for row in rows[:3]] == ["before", "after", "change"]
    before, after, change = rows[:3]
    for name, day in ((before, START_S), (after, START_S + 2 * DAY_S)):
        totals = totals_of(RECORDS, Period(day, day + 2 * DAY_S), Grouping(("model",)))[(name["model"],)]
        assert (name["exchanges"], name["calls"]) == (totals.exchanges, totals.calls)
    assert change["calls"] == after["calls"] - before["calls"]
    assert change["significant"] is False
    explicit = rows_of(report(*options, "--compare", "2024-10-04..2024-10-06"))
    assert explicit == rows


def test_comparison_of_versions_marks_significant_changes(report: Report, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    good, bad = CallKind("edit", "valid"), CallKind("edit", "incomplete")
    fill(
        url,
        [
            ExchangeRecord(START_S, "a" * 24, Series(version="1.0.0", model="m"), [(good, 60), (bad, 40)]),
            ExchangeRecord(START_S + 1, "b" * 24, Series(version="1.1.0", model="m"), [(good, 98), (bad, 2)]),
            ExchangeRecord(START_S + 2, "c" * 24, Series(version="1.1.0", model="new"), [(good, 5)]),
        ],
    )
    options = ("--compare", "version", "1.0.0", "1.1.0", "--by", "model", *ALL)
    rows = {(row["model"], row["side"]): row for row in rows_of(report(*options, "--json", records=url))}
    assert [rows["m", side]["failed_share"] for side in ("before", "after", "change")] == [0.4, 0.02, -0.38]
    assert rows["m", "change"]["significant"] is True
    assert [rows["new", side]["calls"] for side in ("before", "after", "change")] == [0, 5, 5]
    assert rows["new", "change"]["significant"] is False
    text = report(*options, records=url)
    assert "-38.0 pt *" in text
    assert "before: version 1.0.0\nafter:  version 1.1.0" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "upstraem"), "did you mean 'upstream'? - at --by"),
        (("--since", "last week"), "got 'last week' - at --since"),
        (("--since", "2026-01-02", "--until", "2026-01-01"), "got 2026-01-02 to 2026-01-01 (UTC) - at --since"),
        (("--compare", "yesterday"), "expected `previous`, BEGIN..END, or `version A B`; got 'yesterday'"),
        (("--compare", "version", "1"), "got 'version 1' - at --compare"),
        (("--limit", "-1"), "got -1 - at --limit"),
    ],
)
def test_wrong_options_are_explained(report: Report, options: tuple[str, ...], message: str) -> None:
    assert message in report(*options, status=2)


def test_worst_model_and_tool_are_named(report: Report, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    outcomes = {
        ("good", "read"): (200, 1),
        ("good", "edit"): (200, 2),
        ("bad", "read"): (90, 1),
        ("bad", "edit"): (50, 50),
    }
    records = [
        ExchangeRecord(
            START_S + place,
            f"{place:024x}",
            Series(model=model, status=200),
            [(CallKind(tool, "valid"), valid), (CallKind(tool, "invalid"), failed), (CallKind("", "unknown"), 1)],
        )
        for place, ((model, tool), (valid, failed)) in enumerate(outcomes.items())
    ]
    fill(url, records)
    worst = json.loads(report(*ALL, "--json", records=url))["worst"]
    assert (worst["model"]["name"], worst["model"]["failed"], worst["model"]["calls"]) == ("bad", 53, 193)
    assert (worst["tool"]["name"], worst["tool"]["failed_share"]) == ("edit", 0.5)
    text = report(*ALL, records=url)
    assert "Worst model: bad: 53 of 193 calls failed (27.5 %)" in text
    assert "Its worst tool: edit: 50 of 100 calls failed (50.0 %)" in text
    only_good = json.loads(report(*ALL, "--json", "--model", "good", records=url))["worst"]
    assert only_good == {"model": None, "tool": None}
    assert "No model or tool fails significantly more often" in report(*ALL, "--model", "good", records=url)
    assert "significantly" not in report(*ALL, "--model", "good", "--tool", "edit", records=url)


@pytest.mark.parametrize("state", ["missing", "empty", "newer", "damaged", "other", "folder"])
def test_unusable_database_is_explained(report: Report, tmp_path: Path, state: str) -> None:
    file = tmp_path / "records.sqlite"
    url = f"sqlite:///{file}"
    if state in ("newer", "damaged"):
        fill(url, RECORDS[:300])
    if state == "newer":
        engine = open_for_writing(locate(url))
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '999'"))
        engine.dispose()
    elif state == "damaged":
        with sqlite3.connect(file) as closing:
            closing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        closing.close()
        content = bytearray(file.read_bytes())
        content[4096 * 3 :] = b"\x5a" * (len(content) - 4096 * 3)
        file.write_bytes(content)
    elif state == "empty":
        file.touch()
    elif state == "other":
        file.write_text("not a database, but a long text " * 40)
    elif state == "folder":
        file.mkdir()
    message = report(records=url, status=1)
    assert message.startswith("dragoman report: error: ")
    assert str(file) in message
    assert "Traceback" not in message


def test_report_without_exchanges(report: Report, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    fill(url, RECORDS[:1])
    assert report("--since", "1h", records=url).rstrip().endswith("(UTC): no exchanges")


def test_report_reads_while_the_gateway_writes(report: Report, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/records.sqlite"
    fill(url, RECORDS[:100])
    with sqlite3.connect(tmp_path / "records.sqlite") as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM calls")
        assert sum(row["exchanges"] for row in rows_of(report("--by", "model", *ALL, "--json", records=url))) == 100
        writer.rollback()
    writer.close()
