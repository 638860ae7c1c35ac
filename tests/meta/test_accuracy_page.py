"""The accuracy benchmark: prompts with checkable answers, their judges, and results from recorded model texts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import pytest
from bench.accuracy import MODELS, bfcl, judge, report, texts
from bench.accuracy.cases import OPTIONAL, Case, own
from bench.accuracy.ladder import LADDER, SEPARATE_RUNGS, Rung, RungResult, run_rung
from jsonschema import Draft202012Validator

from dragoman.core.events import Notice, ToolCallEnd
from dragoman.core.messages import Tool, ToolCall
from support.check_each import check_each
from support.paths import ROOT
from support.sampling import sample

DOC = ROOT / "docs" / "accuracy.md"
TAGS, RAW, REPAIRED, REASKED, GRAMMAR, GRAMMAR_REPAIRED, GRAMMAR_REASKED, BUFFERED = LADDER
ASKED = next(rung for rung in SEPARATE_RUNGS if rung.title.startswith("asked, "))

OWN = {case.id: case for case in own()}


def first_answer(case: Case) -> list[ToolCall]:
    """The first right answer in the file."""
    answer = case.answers[0] if case.answers else ()
    made = [(tool, {k: v[0] for k, v in values.items() if v[0] != OPTIONAL}) for tool, values in answer]
    return [ToolCall(f"call{i}", tool, json.dumps(arguments)) for i, (tool, arguments) in enumerate(made)]


def case(answers: Sequence[Sequence[tuple[str, dict[str, list[object]]]]]) -> Case:
    return Case("own_x_1", "own_single", (), (Tool("go"),), tuple(map(tuple, answers)))


def test_own_prompts_cover_each_kind() -> None:
    wanted = [c.call_count for c in OWN.values()]
    assert len(wanted) >= 100
    assert {kind: wanted.count(kind) >= 15 for kind in wanted} == dict.fromkeys(("one", "several", "none"), True)


def test_listed_answers_are_valid_and_right(subtests: pytest.Subtests) -> None:
    check_each(subtests, OWN, check_answers)


def check_answers(id: str) -> None:
    one = OWN[id]
    for tool in one.tools:
        Draft202012Validator.check_schema(json.loads(tool.parameters))
    calls = first_answer(one)
    assert judge.judge_calls(one, calls) == judge.Verdict(right=True, calls=len(calls), invalid=0)


def test_every_listed_value_fits_its_schema(subtests: pytest.Subtests) -> None:
    check_each(subtests, OWN, check_values)


def check_values(id: str) -> None:
    schemas = {tool.name: json.loads(tool.parameters) for tool in OWN[id].tools}
    for tool, values in (call for answer in OWN[id].answers for call in answer):
        schema = schemas[tool]
        assert values.keys() == schema["properties"].keys(), "each argument is said to be wanted or left out"
        for name, listed in values.items():
            for value in listed:
                if value == OPTIONAL:
                    assert name not in schema["required"]
                else:
                    assert judge.is_valid(json.dumps(schema["properties"][name]), json.dumps(value))


def test_missing_or_extra_call_is_wrong(subtests: pytest.Subtests) -> None:
    check_each(subtests, OWN, check_wrong_answers)


def check_wrong_answers(id: str) -> None:
    one, calls = OWN[id], first_answer(OWN[id])
    extra = ToolCall("more", one.tools[0].name, '{"no_such_argument": 1}')
    assert not judge.judge_calls(one, [*calls, extra]).right
    if calls:
        assert not judge.judge_calls(one, []).right
        assert not judge.judge_calls(one, calls[:-1]).right
        assert not judge.judge_calls(one, [*calls[:-1], extra]).right


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"n": 3}, True),
        ({"n": 3.0}, True),
        ({"n": "3"}, False),
        ({"n": True}, False),
        ({}, False),
        ({"n": 3, "word": " HELLO "}, True),
        ({"n": 3, "word": "hell"}, False),
        ({"n": 3, "other": 1}, False),
    ],
)
def test_argument_values_are_compared_as_json(arguments: dict[str, object], right: bool) -> None:
    asked = case([[("go", {"n": [3], "word": ["hello", OPTIONAL]})]])
    assert asked.is_right([ToolCall("x", "go", json.dumps(arguments))]) is right


def test_several_calls_are_right_in_any_order() -> None:
    asked = case([[("go", {"to": ["a", "b"]}), ("go", {"to": ["a"]})]])
    a, b = (ToolCall(to, "go", json.dumps({"to": to})) for to in "ab")
    assert asked.is_right([a, b])
    assert asked.is_right([b, a])
    assert asked.is_right([a, a])
    assert not asked.is_right([b, b])


def test_any_listed_answer_is_right() -> None:
    asked = case([[("go", {})], [("go", {}), ("go", {})]])
    call = ToolCall("x", "go", "{}")
    assert [asked.is_right([call] * n) for n in range(4)] == [False, True, True, False]


def test_judge_counts_invalid_calls() -> None:
    one = OWN["own_home_4"]
    calls = [
        ToolCall("1", "set_temperature", '{"room": "bathroom", "celsius": "21.5"}'),
        ToolCall("2", "set_temperature", '{"room": "bathroom", "celsius": 21.5}'),
        ToolCall("3", "no_such_tool", "{}"),
    ]
    assert judge.judge_calls(one, calls) == judge.Verdict(right=False, calls=3, invalid=2)


@pytest.mark.parametrize("category", bfcl.CATEGORIES)
def test_leaderboard_answers_are_right_by_its_judge(category: str) -> None:
    cases = [c for c in bfcl.cases(200) if c.category == category]
    assert len({c.id for c in cases}) == 200
    cases = list(sample(cases, 50, category))
    right = [judge.judge_calls(c, bfcl.truth(c)) for c in cases]
    assert all(verdict.right for verdict in right)
    assert not any(verdict.invalid for verdict in right)
    for c in cases:
        for tool in c.tools:
            Draft202012Validator.check_schema(json.loads(tool.parameters))
            assert "." not in tool.name


def test_leaderboard_judge_rejects_other_answers() -> None:
    for c in bfcl.cases(50):
        calls = bfcl.truth(c)
        other = ToolCall("x", c.tools[0].name, '{"no_such_argument": 1}')
        assert not judge.judge_calls(c, [*calls, other]).right
        assert c.call_count == "none" or not judge.judge_calls(c, []).right


def test_smaller_prompt_set_is_prefix_of_larger_set() -> None:
    assert [c.id for c in bfcl.cases(5)] == [c.id for c in bfcl.cases(60)][:20]


# Results from recorded texts


@cache
def recorded(model: str) -> Mapping[str, Mapping[str, texts.RecordedText]]:
    """The recorded texts by prompt and rung, for known prompts."""
    found: dict[str, dict[str, texts.RecordedText]] = {}
    for written in texts.read_recording(texts.recording(model)):
        if written.id in judge.cases():
            found.setdefault(written.id, {})[written.rung] = written
    return {id: its for id, its in found.items() if "constrained" in its}


def answers(model: str, *rungs: Rung, most: int = 60) -> Iterator[tuple[Case, list[RungResult]]]:
    """Yields the answers to at most `most` prompts, or to all prompts in `make test-all`."""
    for id, its in sample(list(recorded(model).items()), most, model):
        case = judge.cases()[id]
        yield case, [run_rung(rung, case, its) for rung in rungs]


def verdict(case: Case, answer: RungResult) -> judge.Verdict:
    return judge.judge_calls(case, answer.calls, answer.text)


@pytest.mark.parametrize("model", MODELS)
def test_recording_has_all_own_prompts(model: str) -> None:
    assert {id for id in recorded(model) if id.startswith("own_")} == OWN.keys()
    assert (texts.FOLDER / f"{model}.jsonl").stat().st_size < 500_000


@pytest.mark.parametrize("model", MODELS)
def test_repair_and_re_ask_keep_every_right_answer(model: str) -> None:
    for case, (raw, mended, again) in answers(model, RAW, REPAIRED, REASKED):
        rights = [verdict(case, answer).right for answer in (raw, mended, again)]
        assert rights == sorted(rights), case.id
    for case, (held, mended, again) in answers(model, GRAMMAR, GRAMMAR_REPAIRED, GRAMMAR_REASKED):
        rights = [verdict(case, answer).right for answer in (held, mended, again)]
        assert rights == sorted(rights), case.id


@pytest.mark.parametrize("model", MODELS)
def test_valid_answer_is_unchanged(model: str) -> None:
    for case, (raw, mended) in answers(model, RAW, REASKED):
        if not verdict(case, raw).invalid:
            assert [(c.name, c.arguments) for c in mended.calls] == [(c.name, c.arguments) for c in raw.calls], case.id


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rung", [REPAIRED, REASKED, GRAMMAR_REPAIRED, GRAMMAR_REASKED], ids=lambda rung: rung.title)
def test_invalid_call_is_reported(model: str, rung: Rung) -> None:
    """Both `ToolCallEnd` and a warning report it; the judge uses another validator than the guard."""
    for case, (answer,) in answers(model, rung):
        ends = [event for event in answer.events if isinstance(event, ToolCallEnd)]
        valid = [not judge.judge_calls(case, [call]).invalid for call in answer.calls]
        assert [end.schema_valid for end in ends] == valid, case.id
        told = [event for event in answer.events if isinstance(event, Notice) and event.code == "invalid_call"]
        assert len(told) == valid.count(False), case.id


@pytest.mark.parametrize("model", MODELS)
def test_buffering_emits_no_invalid_call(model: str) -> None:
    for case, (answer,) in answers(model, BUFFERED):
        assert verdict(case, answer).invalid == 0, case.id


def test_lenient_guarded_parsing_finds_answers_that_tags_alone_miss() -> None:
    ours = [(case, both) for case, both in answers("qwen2.5-coder-1.5b", TAGS, REASKED, most=10**6) if case.id in OWN]
    called = [[bool(answer.calls) for answer in both] for case, both in ours if case.call_count != "none"]
    assert [sum(each) for each in zip(*called, strict=True)] == [0, 111]
    right = [[verdict(case, answer).right for answer in both] for case, both in ours if case.call_count != "none"]
    assert [sum(each) for each in zip(*right, strict=True)] == [0, 72]


def test_documented_table_equals_recorded_results() -> None:
    rows = report.rows(texts.read_recording(texts.recording("qwen2.5-coder-1.5b")))
    assert report.markdown(report.published(rows)) in DOC.read_text()


def test_headline_equals_recorded_results() -> None:
    rows = report.rows(texts.read_recording(texts.recording("qwen2.5-coder-1.5b")))
    right = {row.rung.title: (row.all_right, row.count) for row in rows}
    (low, count), (high, _) = right[TAGS.title], right[ASKED.title]
    shares = f"{low / count:.0%}".replace("%", " %"), f"{high / count:.0%}".replace("%", " %")
    assert f"from {shares[0]} to {shares[1]}** ({low} and {high} of {count} prompts" in DOC.read_text()
    assert (
        f"{shares[1]} instead of {shares[0]}** ({high} instead of {low} of {count}" in (ROOT / "README.md").read_text()
    )
    assert f"{shares[1]} of {count} prompts" in (ROOT / "docs" / "index.md").read_text()
    assert f"Of {count - high} wrong answers" in DOC.read_text()


def test_documented_figures_of_the_smallest_model_equal_recorded_results() -> None:
    rows = report.rows(texts.read_recording(texts.recording("smollm2-135m")))
    free = {f"{row.all_right} of {row.count}" for row in rows if row.rung in LADDER}
    (required,) = (f"{row.all_right} of {row.count}" for row in rows if row.rung.text == "required")
    assert free == {"41 of 229"}
    assert required == "26 of 140"
    page = DOC.read_text()
    assert f"{free.pop()} are right" in page
    assert f"{required} are" in page


def test_consecutive_rows_with_equal_results_become_one() -> None:
    first, second = report.Row("any", Rung("a")), report.Row("any", Rung("b"))
    other = report.Row("any", Rung("c"), calls=1)
    *_, merged, last, _ = report.markdown([first, second, other]).split("\n")
    assert merged.startswith("| a … b |")
    assert last.startswith("| c |")
