"""Several calls by the model's own count, from recorded texts of prompts that need several."""

from collections import Counter
from collections.abc import Mapping
from functools import cache

import msgspec
import pytest
from bench.accuracy import judge, texts
from bench.accuracy.ladder import REASK, Rung, calls_after, run_rung

MODEL = "qwen2.5-coder-1.5b"
FREE = Rung("one completion", "constrained", "again", REASK)
PLANNED = Rung("several calls planned", "constrained", "again", REASK, after=("planned",))


@cache
def recorded() -> Mapping[str, Mapping[str, texts.RecordedText]]:
    found: dict[str, dict[str, texts.RecordedText]] = {}
    for each in texts.read(texts.FOLDER / "several_calls.jsonl"):
        found.setdefault(each.id, {})[each.rung] = msgspec.structs.replace(each, model=MODEL)
    for each in texts.read_recording(texts.recording(MODEL)):
        if each.id in found:
            found[each.id].setdefault(each.rung, each)
    return found


@pytest.mark.parametrize(("rung", "own", "leaderboard"), [(FREE, 2, 1), (PLANNED, 10, 10)], ids=["free", "planned"])
def test_planned_calls_are_right_more_often(rung: Rung, own: int, leaderboard: int) -> None:
    right: Counter[str] = Counter()
    for id, its in recorded().items():
        case = judge.cases()[id]
        right[case.category] += judge.judge_calls(case, run_rung(rung, case, its).calls).right
    assert right == {"own_parallel": own, "parallel": leaderboard}, "of 15 each"


DROPPED_REPEATS = {"parallel_181": 3}
"""Repeated calls that the guard drops, by prompt."""


def test_planned_text_has_the_counted_calls() -> None:
    for id, its in recorded().items():
        if calls := calls_after(its["asked"]):
            answer = run_rung(PLANNED, judge.cases()[id], its)
            assert len(answer.calls) == calls - DROPPED_REPEATS.get(id, 0), id
