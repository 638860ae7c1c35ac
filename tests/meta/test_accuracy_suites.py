"""The suites of whole exchanges (fresh prompts, tasks of several turns), and the comparison of recordings."""

import ast
import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from bench.accuracy import compare, fresh, judge, texts
from bench.accuracy.cases import Case
from bench.accuracy.cases import fresh as fresh_cases
from bench.accuracy.generate import Meter
from bench.accuracy.multi_turn import tasks
from bench.accuracy.multi_turn.__main__ import play
from bench.accuracy.multi_turn.players import Spent
from bench.accuracy.multi_turn.recording import markdown
from bench.accuracy.multi_turn.tasks import SimulatedSystem, as_source, problem
from jsonschema import Draft202012Validator

from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText
from dragoman.core.messages import Message, Part, Text, Tool, ToolCall
from support.check_each import check_each
from support.paths import ROOT

CASES = {case.id: case for case in fresh_cases()}
ONE = next(case for case in CASES.values() if case.call_count == "one")
NONE = next(case for case in CASES.values() if case.call_count == "none")


def right_calls(case: Case) -> list[ToolCall]:
    (answer,) = case.answers
    return [
        ToolCall("x", tool, json.dumps({key: right[0] for key, right in values.items() if right[0] != "(left out)"}))
        for tool, values in answer
    ]


def answer(case: Case, text: str, *, arm: str = "auto", seed: int = 0) -> fresh.FreshAnswer:
    return fresh.FreshAnswer(case.id, arm, seed, 10, 0, 5, 1.0, 0.5, [text])


def written(case: Case) -> str:
    (call,) = right_calls(case)
    return json.dumps({"name": call.name, "arguments": json.loads(call.arguments)})


def test_there_are_forty_prompts_with_one_call_and_twenty_without() -> None:
    kinds = [case.call_count for case in CASES.values()]
    assert (kinds.count("one"), kinds.count("none"), len(kinds)) == (40, 20, 60)


def test_listed_answer_of_each_prompt_is_right(subtests: pytest.Subtests) -> None:
    check_each(subtests, [id for id, case in CASES.items() if case.answers], check_answer)


def check_answer(id: str) -> None:
    case = CASES[id]
    for tool in case.tools:
        Draft202012Validator.check_schema(json.loads(tool.parameters))
    assert judge.judge_calls(case, right_calls(case)) == judge.Verdict(right=True, calls=1, invalid=0)
    schemas = {tool.name: json.loads(tool.parameters)["properties"] for tool in case.tools}
    for tool, values in case.answers[0]:
        assert values.keys() == schemas[tool].keys()


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Good morning!", True),
        ('He wrote {"name": "Tom"}.', True),
        ('{"name": "greet", "arguments": {}}', False),
        ("<tools>", False),
    ],
)
@pytest.mark.parametrize("id", [NONE.id, "own_weather_12", "irrelevance_0"])
def test_text_that_resembles_a_call_is_wrong_where_no_tool_is_suitable(id: str, text: str, right: bool) -> None:
    case = judge.cases()[id]
    assert case.call_count == "none"
    assert judge.judge_calls(case, [], text).right is right


def test_right_and_wrong_answers_are_counted_by_group() -> None:
    found = fresh.groups(
        [
            answer(ONE, written(ONE)),
            answer(ONE, "I cannot do that.", seed=1),
            answer(NONE, "Good morning!"),
            answer(NONE, written(ONE), seed=1),
        ]
    )
    assert [(group.title, group.right, group.answers, group.most_calls) for group in found] == [
        ("one call, free choice", 1, 1, 1),
        ("one call, free choice, temperature 0.3", 0, 1, 0),
        ("no suitable tool, free choice", 1, 1, 0),
        ("no suitable tool, free choice, temperature 0.3", 0, 1, 1),
    ]


class ScriptedEngine:
    pid = None

    async def complete(self, body: object, *, admitted: bool, slot: object) -> AsyncGenerator[Output, None]:
        for output in (Progress(7, 7), TokenText("a"), TokenText("b"), Done("stop", 2, 0)):
            yield output


async def metered_texts(most: int) -> list[str]:
    meter = Meter(ScriptedEngine())
    async with aclosing(meter.complete({"prompt": "x"})) as outputs:
        for _ in range(most):
            await anext(outputs)
    return meter.texts


def test_meter_stores_a_text_that_is_not_read_to_its_end() -> None:
    assert asyncio.run(metered_texts(2)) == ["a"]
    assert asyncio.run(metered_texts(4)) == ["ab"]


def test_interval_is_within_bounds_and_narrows() -> None:
    assert fresh.wilson(0, 10)[0] == pytest.approx(0)
    low, high = fresh.wilson(40, 40)
    assert high == pytest.approx(100)
    assert 91 < low < 92
    assert fresh.wilson(120, 120)[0] > low


def test_recording_without_repeated_texts_has_the_same_answers(tmp_path: Path) -> None:
    first, again = answer(ONE, written(ONE)), answer(ONE, written(ONE), seed=1)
    other = msgspec.structs.replace(answer(ONE, "no", seed=2), outcome=fresh.ClientView([], "other", []))
    fresh.record([other, again, first], tmp_path / "fresh.jsonl")
    stored = fresh.read(tmp_path / "fresh.jsonl")
    assert [each.texts for each in stored] == [first.texts, first.texts, ["no"]]
    assert [each.outcome for each in stored] == [None, None, other.outcome]
    assert (tmp_path / "fresh.jsonl").read_text().count("arguments") == 1


def test_documented_tables_equal_recorded_results() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert fresh.markdown(fresh.groups(fresh.common(fresh.read(fresh.RECORDING)))) in page


def test_arms_are_compared_on_common_prompts() -> None:
    only, both = list(CASES)[:2]
    answers = [answer(CASES[id], "no", arm=arm) for id, arm in ((only, "auto"), (both, "auto"), (both, "required"))]
    assert fresh.common([*answers, answer(NONE, "no")]) == [*answers[1:], answer(NONE, "no")]


def test_recorded_calls_never_exceed_the_limit() -> None:
    assert fresh.RECORDING.stat().st_size < 60_000
    assert all(group.most_calls <= 1 for group in fresh.groups(fresh.read(fresh.RECORDING)))


def test_group_with_fewer_right_answers_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    fresh.record([answer(ONE, written(ONE))], old)
    fresh.record([answer(ONE, "I cannot.")], new)
    assert compare.changes(old, new) == [compare.GroupChange("one call, free choice", 1, 0, 1)]
    assert compare.main([str(old), str(new), "--below", "0"]) == 1
    assert "BELOW" in capsys.readouterr().out
    assert compare.main([str(old), str(new)]) == 0


def test_groups_of_a_ladder_are_compared(tmp_path: Path) -> None:
    head, *lines = texts.recording("qwen2.5-coder-1.5b").read_text().splitlines()
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    its = [line for line in lines if '"id":"own_weather_1"' in line]
    old.write_text("\n".join([head, *its]))
    new.write_text("\n".join([head, *(line.replace("Lisbon", "Leiden") for line in its)]))
    found = {change.group: (change.old, change.new, change.answers) for change in compare.changes(old, new)}
    assert found["raw: ours, one call"] == (1, 0, 1)
    assert found["tags only: ours, one call"] == (0, 0, 1)


def test_recordings_of_different_kinds_are_not_compared(tmp_path: Path) -> None:
    fresh.record([answer(ONE, written(ONE))], tmp_path / "fresh.jsonl")
    with pytest.raises(SystemExit, match="of one kind"):
        compare.changes(texts.recording("smollm2-135m"), tmp_path / "fresh.jsonl")


# Tasks of several turns


TASK = tasks.tasks()[0]


def test_first_tasks_of_each_system_are_used() -> None:
    assert len(tasks.tasks()) == 12
    assert [task.id.rpartition("_")[2] for task in tasks.tasks()[::3]] == ["6", "50", "100", "150"]


def test_simulated_tools_keep_their_state() -> None:
    simulation, name = SimulatedSystem(TASK), ("touch", '{"file_name": "new.txt"}')
    assert "new.txt" not in simulation.execute(("ls", "{}"))
    simulation.execute(name)
    assert "new.txt" in simulation.execute(("ls", "{}"))
    assert "new.txt" not in SimulatedSystem(TASK).execute(("ls", "{}"))


def test_invalid_call_gets_an_error_as_result() -> None:
    simulation = SimulatedSystem(TASK)
    for call in (("no_such_tool", "{}"), ("ls", "[1]"), ("ls", "{"), ("ls", '{"a b": 1}')):
        assert "error" in json.loads(simulation.execute(call))
    assert "Error" in simulation.execute(("cd", '{"other": "x"}'))


def test_call_becomes_source_with_literal_values() -> None:
    assert as_source(("ls", '{"a": true, "b": "x\'; exit()"}'), {"ls"}) == """ls(a=True, b="x'; exit()")"""
    assert as_source(("exit", "{}"), {"ls"}) == ""
    assert as_source(("ls", '{"a=exit(),b": 1}'), {"ls"}) == ""


def test_checker_accepts_right_calls_and_rejects_missing_ones() -> None:
    right = [[[as_call(source)] for source in turn] for turn in tasks.truth(TASK)]
    assert problem(TASK, right) == ""
    assert problem(TASK, [*right[:4], []]) == "empty_turn_model_response"
    assert problem(TASK, [[[("ls", "{}")]], *right[1:]]) == "instance_state_mismatch"


class ScriptedPlayer:
    """Answers with the calls of a script, one at a time, and "Done." after those of each turn."""

    def __init__(self, turns: Sequence[Sequence[str]]) -> None:
        self.spent = Spent()
        self._answers = [part for turn in turns for part in (*map(self._call, turn), Text("Done."))]

    def _call(self, source: str) -> Part:
        return ToolCall("id", *as_call(source))

    async def answer(self, messages: Sequence[Message], tools: Sequence[Tool], seed: int) -> tuple[Part, ...]:
        assert tools == TASK.tools
        return (self._answers.pop(0),)


def test_task_is_played_turn_by_turn() -> None:
    run = asyncio.run(play(TASK, ScriptedPlayer(tasks.truth(TASK)), "scripted", 0))
    assert run.problem == ""
    assert [len(turn) for turn in run.turns] == [2, 1, 1, 1, 4]
    assert run.texts == ["Done."] * 5
    assert "| scripted | 1 of 1 | 5 of 5 | 9 | 0 | 0 |" in markdown([run])


def test_turn_ends_after_eight_answers() -> None:
    run = asyncio.run(play(TASK, ScriptedPlayer([["ls()"] * 40]), "scripted", 0))
    assert [len(turn) for turn in run.turns] == [8] * 5
    assert run.problem == "instance_state_mismatch"


def as_call(source: str) -> tuple[str, str]:
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    return call.func.id, json.dumps({str(each.arg): ast.literal_eval(each.value) for each in call.keywords})
