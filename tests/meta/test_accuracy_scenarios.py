"""The tasks of several steps: their tools, their judge, the loop that runs them, and the recorded runs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bench.accuracy.scenarios import facts, report
from bench.accuracy.scenarios.arms import ARMS
from bench.accuracy.scenarios.cases import SCENARIOS
from bench.accuracy.scenarios.episode import Episode
from bench.accuracy.scenarios.judge import RunVerdict, judge
from bench.accuracy.scenarios.recording import FOLDER, RecordedCall, RecordedTurn, ScenarioRun, read_recordings
from bench.accuracy.scenarios.run import LOOP_TURNS, MAX_TURNS, run_scenario
from jsonschema import Draft202012Validator

from support.check_each import check_each
from support.paths import ROOT
from support.scenario_solutions import SOLUTIONS, Call

DOC = ROOT / "docs" / "accuracy.md"


class ScriptedModel:
    """Responds with one call for each turn, then with the text."""

    def __init__(self, calls: Sequence[Call], text: str) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self._calls, self._text = calls, text

    def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        turn = len(self.bodies)
        self.bodies.append(json.loads(json.dumps(body)))
        message: dict[str, Any] = {"role": "assistant", "content": self._text}
        if turn < len(self._calls):
            name, arguments = self._calls[turn]
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": f"call{turn}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2},
        }


def run(name: str, calls: Sequence[Call], text: str, arm: str = "dragoman") -> tuple[ScenarioRun, ScriptedModel]:
    model = ScriptedModel(calls, text)
    return run_scenario(SCENARIOS[name], arm, ARMS[arm], model.post, lambda: 0.0, {"model": "m", "seed": 4}), model


def verdict_of(name: str, calls: Sequence[Call], text: str) -> RunVerdict:
    return judge(run(name, calls, text)[0])


def test_there_are_thirty_scenarios_with_a_right_run_each() -> None:
    assert len(SCENARIOS) == 30
    assert SOLUTIONS.keys() == SCENARIOS.keys()


def test_right_run_is_right(subtests: pytest.Subtests) -> None:
    check_each(subtests, SCENARIOS, check_right_run)


def check_right_run(name: str) -> None:
    calls, text = SOLUTIONS[name]
    assert verdict_of(name, calls, text) == RunVerdict(
        "", (), False, 1 if name in ("id_format", "missing_folder") else 0
    )


def test_run_without_its_last_call_is_wrong(subtests: pytest.Subtests) -> None:
    check_each(subtests, SCENARIOS, check_shorter_run)


def check_shorter_run(name: str) -> None:
    calls, text = SOLUTIONS[name]
    if calls:
        assert verdict_of(name, calls[:-1], text or "Done.").problem


def test_run_without_lookups_is_wrong(subtests: pytest.Subtests) -> None:
    check_each(subtests, SCENARIOS, check_run_without_lookups)


def check_run_without_lookups(name: str) -> None:
    calls, text = SOLUTIONS[name]
    if len(calls) > 1:
        assert verdict_of(name, calls[1:], text or "Done.").problem or name in ("id_format", "missing_folder")


def test_further_change_is_wrong() -> None:
    calls, _ = SOLUTIONS["copy_two"]
    further = [*calls, ("delete_file", {"path": "/config/app.ini"})]
    assert "delete_file" in verdict_of("copy_two", further, "Copied.").problem


def test_call_is_wrong_where_no_tool_fits() -> None:
    assert verdict_of("no_tool_in_words", [("search_tickets", {"keyword": "VPN"})], "It helps users.").problem


def test_schemas_are_valid_and_steps_name_offered_tools(subtests: pytest.Subtests) -> None:
    check_each(subtests, SCENARIOS, check_tools)


def check_tools(name: str) -> None:
    scenario = SCENARIOS[name]
    names = [tool.name for tool in scenario.tools]
    for tool in scenario.tools:
        Draft202012Validator.check_schema(tool.parameters)
    steps = scenario.request_steps
    assert len(set(names)) == len(names)
    assert {*steps.get("required", ()), *steps.get("terminal", ())} <= {*names}
    assert not {*steps.get("required", ())} & {*steps.get("terminal", ())}


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("no_such_tool", "{}", "does not exist. Tools: get_order"),
        ("get_order", "{", "not valid JSON"),
        ("get_order", "{}", "'order_id' is a required property"),
        ("get_order", '{"order_id": 5}', "5 is not of type 'string'"),
        ("get_order", '{"order_id": "SO-1"}', "orders has no entry 'SO-1'"),
        ("refund_order", '{"order_id": "SO-6027", "amount": 1}', "must be the total"),
    ],
)
def test_invalid_call_gets_an_error_and_changes_nothing(name: str, arguments: str, error: str) -> None:
    episode = Episode(SCENARIOS["refund_damaged"])
    assert error in json.loads(episode.call(name, arguments))["error"]
    assert (episode.failed, episode.succeeded) == (1, [])
    assert episode.state == SCENARIOS["refund_damaged"].state()


def test_runs_do_not_share_their_state() -> None:
    first, second = Episode(SCENARIOS["delete_temporary"]), Episode(SCENARIOS["delete_temporary"])
    first.call("delete_file", '{"path": "/photos/old_backup_7f3.tmp"}')
    assert "/photos/old_backup_7f3.tmp" in second.state["files"]


def test_loop_sends_results_and_steps() -> None:
    recorded, model = run("refund_damaged", *SOLUTIONS["refund_damaged"], arm="steps")
    assert (recorded.end, recorded.seed, len(recorded.turns)) == ("terminal", 4, 2)
    assert model.bodies[0]["dragoman"] == {
        "steps": {"required": ["get_order"], "ordered": True, "terminal": ["refund_order"]}
    }
    assert [message["role"] for message in model.bodies[1]["messages"]] == ["user", "assistant", "tool"]
    assert "dragoman" not in run("refund_damaged", *SOLUTIONS["refund_damaged"])[1].bodies[0]


def test_loop_ends_after_the_maximum_of_turns() -> None:
    calls: list[Call] = [("get_stock", {"item_id": f"IT-{number}"}) for number in range(50)]
    recorded, _ = run("id_format", calls, "")
    assert (recorded.end, len(recorded.turns)) == ("turns", MAX_TURNS)
    assert judge(recorded).problem


def test_loop_ends_after_the_same_call_with_the_same_result() -> None:
    recorded, _ = run("id_format", [("get_stock", {"item_id": "IT-1"})] * 50, "")
    assert (recorded.end, len(recorded.turns)) == ("loop", LOOP_TURNS)


def test_result_that_differs_from_the_recorded_one_is_an_error() -> None:
    call = RecordedCall("get_order", '{"order_id": "SO-6027"}', '{"status": "lost"}')
    with pytest.raises(ValueError, match="expected the recorded result"):
        judge(ScenarioRun("bare", "refund_damaged", 0, [RecordedTurn("x", calls=[call])], "text"))


# Invented facts


@pytest.mark.parametrize(
    ("text", "invented"),
    [
        ("Order SO-5513 costs 64.50 euros.", []),
        ("Order SO-5514 costs 64.5 euros.", ["SO-5514"]),
        ("It costs 1,064.5 euros.", ["1,064.5"]),
        ("1. It costs 64.5\n2. It is on 3 lists", []),
        ("Ask ada@corp.example.", ["ada@corp.example"]),
        ("The customer is Mara Lindqvist.", []),
        ("The customer is Maria Gomez.", ["Maria Gomez"]),
        ('{"name": "get_order", "arguments": {"order_id": "SO-1"}}', []),
        ('```json\n{"name": "get_order", "arguments": {"order_id": "SO-1"}', []),
        ('It is {"status": "sold 77"}', ["77"]),
    ],
)
def test_fact_that_no_source_contains_is_invented(text: str, invented: list[str]) -> None:
    sources = ["Tell me about SO-5513", '{"total": 64.5, "name": "Mara Lindqvist"}']
    assert facts.unsupported(text, sources) == invented


def test_fact_stated_before_its_result_is_invented() -> None:
    calls, _ = SOLUTIONS["order_status"]
    recorded, _ = run("order_status", calls, "SO-5513 is in transit.")
    early = ScenarioRun(
        "bare", "order_status", 0, [RecordedTurn("x", "SO-5513 is in transit."), *recorded.turns], "text"
    )
    assert judge(recorded).unsupported == ()
    assert judge(early).unsupported == ("SO-5513",)


def test_invented_value_of_a_change_is_counted() -> None:
    calls: list[Call] = [("submit_report", {"open_count": 10, "oldest_ticket_id": "TK-999"})]
    assert verdict_of("weekly_report", calls, "").unsupported == ("10", "TK-999")


def test_invented_id_is_not_known_because_an_error_repeats_it() -> None:
    calls: list[Call] = [("get_order", {"order_id": "SO-9999"})]
    assert verdict_of("refund_damaged", calls, "SO-9999 does not exist.").unsupported == ("SO-9999",)


def test_reported_success_that_did_not_happen_is_invented() -> None:
    text = "The file has been moved successfully."
    assert verdict_of("missing_folder", [], text).unsupported == ("reported success",)
    assert verdict_of("missing_folder", SOLUTIONS["missing_folder"][0], text).unsupported == ()


def test_call_in_the_text_is_reported() -> None:
    text = '```json\n{"name": "get_order", "arguments": {"order_id": "SO-6027"}}\n```'
    assert verdict_of("refund_damaged", [], text).is_leaked
    assert not verdict_of("refund_damaged", [], "I do not know.").is_leaked


# Recorded runs


def test_interval_contains_the_share() -> None:
    assert report.wilson(0, 30) == pytest.approx((0.0, 0.1135), abs=1e-3)
    assert report.wilson(15, 30) == pytest.approx((0.3315, 0.6685), abs=1e-3)


def test_recorded_runs_are_small_and_unique() -> None:
    runs = read_recordings()
    assert len({(run.arm, run.scenario, run.seed) for run in runs}) == len(runs) > 0
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 150_000


def test_documented_table_equals_recorded_runs() -> None:
    assert report.markdown(read_recordings()) in DOC.read_text()


def test_each_arm_ran_each_task() -> None:
    assert report.common_tasks(read_recordings()) == {(name, 0) for name in SCENARIOS}


def test_recorded_runs_began_with_the_request_of_today() -> None:
    sampling = {"model": "qwen2.5-coder-1.5b", "temperature": 0.0, "seed": 0}
    different = set()
    for run in read_recordings():
        model = ScriptedModel([], "Done.")
        today = run_scenario(SCENARIOS[run.scenario], run.arm, ARMS[run.arm], model.post, lambda: 0.0, sampling)
        if today.turns[0].request != run.turns[0].request:
            different.add((run.arm, run.scenario))
    assert different == set()


def test_transcripts_contain_each_run() -> None:
    runs = read_recordings()
    text = "\n".join(report.transcripts(runs))
    assert all(f"== {run.scenario} · {run.arm} · seed {run.seed}" in text for run in runs)
