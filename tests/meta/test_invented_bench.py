"""The judge of invented identifiers: its conversations, small examples, and the recorded answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import invented
from bench.invented import InventedAnswer, conversations, invented_ids, is_id, is_right, results

from dragoman.core.messages import Part, Text, ToolCall, ToolResult, part_text
from support.paths import ROOT

CASES = conversations()
FOUND = CASES["all_interactions_patient_found"]


def answer(id: str, *calls: tuple[str, dict[str, Any]], setting: str = "off") -> InventedAnswer:
    encoded = [(name, json.dumps(arguments)) for name, arguments in calls]
    return InventedAnswer(setting, id, CASES[id].ask, encoded, 2, 30, 1.5)


def parts(id: str) -> Iterator[Part]:
    for message in CASES[id].request.messages:
        yield from message.parts


def texts(id: str) -> str:
    shown = [part.parts[0] if isinstance(part, ToolResult) else part for part in parts(id)]
    return "\n".join(part_text(part) for part in shown if isinstance(part, Text))


def test_twenty_four_conversations_with_different_ids() -> None:
    assert len(CASES) == 24
    kinds = {case.request.tools[0].name for case in CASES.values()}
    assert len(kinds) == 7


@pytest.mark.parametrize("id", CASES)
def test_known_ids_are_those_of_the_conversation(id: str) -> None:
    case = CASES[id]
    assert all(each in texts(id) for each in case.known)
    calls = [(part.name, part.arguments) for part in parts(id) if isinstance(part, ToolCall)]
    assert invented_ids(case.known, calls) == []
    results = [json.loads(part_text(part.parts[0])) for part in parts(id) if isinstance(part, ToolResult)]
    rows = [row for found in results for row in (found if isinstance(found, list) else [found])]
    shown = {value for row in rows if isinstance(row, dict) for name, value in row.items() if is_id(name)}
    assert shown | {row for row in rows if isinstance(row, str)} <= case.known


@pytest.mark.parametrize("id", CASES)
def test_first_tools_are_offered_and_can_be_called_with_what_is_known(id: str) -> None:
    case = CASES[id]
    tools = {tool.name: json.loads(tool.parameters)["required"] for tool in case.request.tools}
    needs_id = {name for name in case.first if any(map(is_id, tools[name]))}
    assert case.first
    assert not needs_id or case.known


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"patient_id": "P-7731"}, []),
        ({"patient_id": "P-7732"}, ["P-7732"]),
        ({"patient_id": "7731"}, ["7731"]),
        ({"patient_id": "Maria Stone"}, ["Maria Stone"]),
        ({"patient_id": ""}, [""]),
        ({"patient_id": 7731}, ["7731"]),
        ({"patient_id": None}, []),
        ({"name": "Maria Stone"}, []),
        ({"path": "notes.txt", "folder": "old"}, ["notes.txt"]),
    ],
)
def test_an_id_that_is_not_listed_is_invented(arguments: dict[str, Any], found: list[str]) -> None:
    assert invented_ids(FOUND.known, [("list_medications", json.dumps(arguments))]) == found


def test_every_call_is_judged() -> None:
    right, wrong = ("list_medications", {"patient_id": "P-7731"}), ("check_interactions", {"medication_id": "M-1"})
    assert is_right(FOUND, answer(FOUND.id, right))
    assert not is_right(FOUND, answer(FOUND.id, right, wrong))
    assert not is_right(FOUND, answer(FOUND.id, ("get_patient_record", {"patient_id": "P-7731"})))
    assert not is_right(FOUND, answer(FOUND.id))


@pytest.mark.parametrize("arguments", ["[1]", '{"patient_id": ', ""])
def test_arguments_without_members_have_no_id(arguments: str) -> None:
    assert invented_ids((), [("list_medications", arguments)]) == []


def test_results_of_each_setting() -> None:
    off = [answer("heater", ("switch_device", {"device_id": "heater", "state": "off"})), answer("device_named")]
    reask = [answer("heater", ("list_devices", {"room": "bathroom"}), setting="reask")]
    first, second = results([*off, *reask], CASES)
    assert (first.answers, first.invented, first.right, first.in_words) == (2, 1, 0, 1)
    assert (second.setting, second.right, second.generations, second.output_tokens) == ("reask", 1, 2, 30)
    assert "1 conversations: 0 with an invented value, 1 begin with the right tool, 0 in words" in str(second)


def test_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    answers = [answer("heater", ("list_devices", {"room": "bathroom"})), answer("device_named")]
    invented.record(invented.MODEL, answers, tmp_path / "answers.jsonl")
    assert invented.read(tmp_path / "answers.jsonl") == answers
    head = json.loads((tmp_path / "answers.jsonl").read_text().splitlines()[0])
    assert {"date", "dragoman", "engine", "model", "settings"} <= head.keys()
    assert invented.read(tmp_path / "none.jsonl") == []


def test_judge_does_not_use_the_guards_detector() -> None:
    assert "invented_values" not in "\n".join(
        line for line in (ROOT / "bench" / "invented.py").read_text().splitlines() if "import" in line
    )


@pytest.mark.skipif(not invented.RECORDING.exists(), reason="no answers have been recorded")
def test_recorded_answers_are_those_of_all_conversations() -> None:
    answers = invented.read(invented.RECORDING)
    assert all(CASES[each.id].ask == each.ask for each in answers)
    assert {each.setting for each in answers} >= {*invented.SETTINGS}
    assert [each.id for each in answers if each.setting == "off"] == [*CASES]
    assert all(each.answers == len(CASES) for each in results(answers, CASES))
