"""The rows of `dragoman watch`: kept by id, filtered, sorted, bounded, and in a pause not changed."""

from typing import Any

from dragoman.cli.watch.traffic_list import TrafficList, is_failed
from dragoman.console.api import RowCall, TrafficRow


def row(number: int, state: Any = "done", **fields: Any) -> TrafficRow:
    return TrafficRow(id=f"req_{number}", began_s=float(number), state=state, **fields)


def ids(rows: TrafficList) -> list[str]:
    return [each.id.removeprefix("req_") for each in rows.visible]


def test_newest_is_first_and_a_row_is_replaced_by_its_id() -> None:
    rows = TrafficList()
    rows.add([row(1, "running"), row(3), row(2)])
    rows.add([row(1, model="m")])
    assert ids(rows) == ["3", "2", "1"]
    assert rows.visible[2].model == "m"


def test_an_ended_exchange_does_not_run_again() -> None:
    rows = TrafficList()
    rows.add([row(1)])
    rows.add([row(1, "running")])
    assert (rows.visible[0].state, rows.running_count) == ("done", 0)


def test_oldest_rows_are_dropped() -> None:
    rows = TrafficList(max_rows=3)
    rows.add(row(number) for number in range(10))
    rows.add([row(0)])
    assert ids(rows) == ["9", "8", "7"]
    assert len(rows) == 3


def test_words_select_rows_by_all_that_is_known() -> None:
    rows = TrafficList()
    calls = [RowCall(tool="get_weather", outcome="repaired", repairs=["unquoted_key"])]
    rows.add([row(1, agent="claude-code", calls=calls), row(2, agent="codex", error="UpstreamError: status 500")])
    for query, found in (("CLAUDE", ["1"]), ("weather unquoted", ["1"]), ("codex weather", []), ("status 500", ["2"])):
        rows.query = query
        rows.update()
        assert ids(rows) == found, query
    rows.add([row(2, agent="codex", model="weather-7b")])
    rows.query = "codex weather"
    rows.update()
    assert ids(rows) == ["2"]


def test_failed_rows_alone_or_first() -> None:
    rows = TrafficList()
    bad_call = [RowCall(tool="t", outcome="unknown")]
    rows.add([row(1, "failed"), row(2), row(3, calls=bad_call), row(4, calls=[RowCall(tool="t", outcome="valid")])])
    assert [is_failed(each) for each in rows.visible] == [False, True, False, True]
    rows.failed_first = True
    rows.update()
    assert ids(rows) == ["3", "1", "4", "2"]
    rows.only_failed = True
    rows.update()
    assert ids(rows) == ["3", "1"]


def test_in_a_pause_only_the_user_changes_the_list() -> None:
    rows = TrafficList()
    rows.add([row(1)])
    rows.pause(True)
    rows.add([row(2), row(1, "failed")])
    assert (ids(rows), rows.new_count) == (["1"], 1)
    rows.only_failed = True
    rows.update(in_pause=True)
    assert ids(rows) == ["1"]
    rows.only_failed = False
    rows.pause(False)
    assert ids(rows) == ["2", "1"]


def test_exchanges_that_ended_without_a_connection_are_removed() -> None:
    rows = TrafficList()
    rows.add([row(1, "running"), row(2, "running"), row(3)])
    rows.end_others([row(2, "running")])
    rows.update()
    assert ids(rows) == ["3", "2"]
