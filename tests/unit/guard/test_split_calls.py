"""A call with a list in place of a single value is split into several calls, if the list cannot be one value."""

import json
from typing import Any

import pytest

from dragoman.core.messages import Tool
from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.repair import RepairedArguments
from dragoman.guard.split_calls import MAX_CALLS, SPLIT_INTO_CALLS
from dragoman.guard.validation.compiled_schema import compile_schema
from dragoman.guard.verdict import judge_call
from support.repairs import repair_several

S = {"type": "string"}
N = {"type": "integer"}
UNIT = {"enum": ["celsius", "fahrenheit"]}


def of(properties: dict[str, Any]) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": list(properties)[:1]})


def split_of(properties: dict[str, Any], written: Any) -> list[Any]:
    return [
        json.loads(each.arguments)
        for each in repair_several(json.dumps(written), compile_schema(of(properties)), ARGUMENT_REPAIRS)
    ]


@pytest.mark.parametrize(
    ("properties", "written", "calls"),
    [
        ({"id": N}, {"id": [12, 13]}, [{"id": 12}, {"id": 13}]),
        ({"city": S, "unit": UNIT}, {"city": ["Rome", "Oslo"]}, [{"city": "Rome"}, {"city": "Oslo"}]),
        (
            {"city": S, "unit": UNIT},
            {"unit": "celsius", "city": ["Rome", "Oslo"]},
            [{"unit": "celsius", "city": "Rome"}, {"unit": "celsius", "city": "Oslo"}],
        ),
        ({"a": N, "b": N}, {"a": [1, 2], "b": [3, 4]}, [{"a": 1, "b": 3}, {"a": 2, "b": 4}]),
        ({"unit": UNIT}, {"unit": ["celsius", "Fahrenheit"]}, [{"unit": "celsius"}, {"unit": "fahrenheit"}]),
        ({"id": {"anyOf": [N, {"type": "null"}]}}, {"id": [1, 2]}, [{"id": 1}, {"id": 2}]),
        ({"id": N}, {"id": ["1", "2"]}, [{"id": 1}, {"id": 2}]),
    ],
)
def test_list_of_values_is_split_into_calls(properties: dict[str, Any], written: Any, calls: list[Any]) -> None:
    assert split_of(properties, written) == calls


@pytest.mark.parametrize(
    ("properties", "written"),
    [
        pytest.param({"command": S}, {"command": ["rm", "-r", "old"]}, id="the words of a command"),
        pytest.param({"content": S, "path": S}, {"path": "a", "content": ["one", "two"]}, id="the lines of a file"),
        pytest.param({"messageText": S}, {"messageText": ["Hello", "and bye"]}, id="the paragraphs of a letter"),
        pytest.param({"path": S}, {"path": ["home", "me", "tmp"]}, id="the folders of a path"),
        pytest.param({"targetDir": S}, {"targetDir": ["home", "me"]}, id="a directory"),
        pytest.param({"url": S}, {"url": ["http://x", "delete"]}, id="an address"),
        pytest.param({"base_branch": S}, {"base_branch": ["feature", "x"]}, id="a branch"),
        pytest.param({"target": S}, {"target": ["/", "home", "me", "tmp"]}, id="a root"),
        pytest.param({"target": S}, {"target": ["home", ".."]}, id="the folder above"),
        pytest.param({"target": S}, {"target": ["tmp", "*"]}, id="everything"),
        pytest.param({"target": S}, {"target": ["home/", "me"]}, id="a folder"),
        pytest.param({"target": S}, {"target": ["http", "/delete"]}, id="the end of an address"),
        pytest.param({"target": S}, {"target": ["C:", "data"]}, id="a drive"),
        pytest.param({"target": S}, {"target": ["\\\\share", "x"]}, id="a share"),
        pytest.param({"target": S}, {"target": ["a", ""]}, id="nothing"),
        pytest.param({"date": S}, {"date": ["2026-01-01", "2026-01-31"]}, id="a range of days"),
        pytest.param({"place": S}, {"place": [48.85, 2.35]}, id="coordinates"),
        pytest.param({"id": N}, {"id": [12, 12]}, id="the same twice"),
        pytest.param({"id": N}, {"id": [12]}, id="one"),
        pytest.param({"id": N}, {"id": []}, id="none"),
        pytest.param({"id": N}, {"id": list(range(MAX_CALLS + 1))}, id="very many"),
        pytest.param({"id": N}, {"id": [1, "x"]}, id="one that is none"),
        pytest.param({"id": N}, {"id": [1, None]}, id="one that is nothing"),
        pytest.param({"a": N, "b": N}, {"a": [1, 2], "b": [1, 2, 3]}, id="not as many of each"),
        pytest.param({"to": S, "text": S}, {"to": ["a", "b"], "text": ["c", "d"]}, id="one of them in pieces"),
        pytest.param({"id": {"type": "array", "items": N}}, {"id": ["x", "y"]}, id="a list is wanted"),
        pytest.param({"id": {"anyOf": [N, {"type": "array", "items": N}]}}, {"id": ["1", "2"]}, id="a list may be"),
        pytest.param({"id": N}, {"id": [[1], [2]]}, id="lists of lists"),
        pytest.param({"id": N}, [1, 2], id="a list by itself"),
        pytest.param({"id": N}, {"other": [1, 2]}, id="somewhere else"),
    ],
)
def test_list_that_may_be_one_value_is_not_split(properties: dict[str, Any], written: Any) -> None:
    assert split_of(properties, written) == []


def test_disabled_split_is_not_applied() -> None:
    schema = compile_schema(of({"id": N}))
    assert repair_several('{"id":[1,2]}', schema, [SPLIT_INTO_CALLS]) == [
        RepairedArguments('{"id":1}', (SPLIT_INTO_CALLS,)),
        RepairedArguments('{"id":2}', (SPLIT_INTO_CALLS,)),
    ]
    assert repair_several('{"id":[1,2]}', schema, [step for step in ARGUMENT_REPAIRS if step != SPLIT_INTO_CALLS]) == []
    assert repair_several('{"id":["1","2"]}', schema, [SPLIT_INTO_CALLS]) == []


def test_unreadable_or_unvalidated_call_is_not_split() -> None:
    assert repair_several('{"id":[1,2', compile_schema(of({"id": N})), ARGUMENT_REPAIRS) == []
    assert repair_several('{"id":[1,2]}', compile_schema("no schema"), ARGUMENT_REPAIRS) == []


def test_a_list_next_to_a_lone_surrogate_is_not_split() -> None:
    """JSON accepts a lone surrogate, but UTF-8 cannot represent it, so no call can be written."""
    tool = Tool("cancel", parameters=of({"id": N, "note": S}))
    verdict = judge_call(tool, '{"id": [1, 2], "note": "\\ud800"}', ARGUMENT_REPAIRS)
    assert (verdict.valid, verdict.extra_calls) == (False, ())


def test_repairable_call_is_not_split() -> None:
    tool = Tool("cancel", parameters=of({"id": N}))
    assert judge_call(tool, '{"id": ["12"]}', ARGUMENT_REPAIRS).extra_calls == ()
    verdict = judge_call(tool, '{"id": [12, 13]}', ARGUMENT_REPAIRS)
    assert (verdict.arguments, verdict.repairs, verdict.extra_calls) == (
        '{"id":12}',
        (SPLIT_INTO_CALLS,),
        (RepairedArguments('{"id":13}', (SPLIT_INTO_CALLS,)),),
    )
    assert (
        judge_call(tool, '{"id": [12, 13]}', [step for step in ARGUMENT_REPAIRS if step != SPLIT_INTO_CALLS]).valid
        is False
    )
