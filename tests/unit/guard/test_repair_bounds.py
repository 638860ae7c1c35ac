"""Repair work is bounded for any schema and any arguments."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragoman.guard import repair as mending
from dragoman.guard.repair import MAX_ARGUMENT_CHARS, MAX_WORK
from dragoman.guard.validation.compiled_schema import CompiledSchema
from dragoman.guard.validation.violations import Violation
from support.repairs import repair_one, repair_several

N = {"type": "integer"}


def obj(properties: dict[str, Any], **words: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **words}


def choices(depth: int, number: int) -> dict[str, Any]:
    """Returns a schema of nested objects with this number of alternatives each."""
    if not depth:
        return {"anyOf": [obj({"k": {"const": f"{n}"}}, required=["k"]) for n in range(100)]}
    return {"anyOf": [obj({"x": choices(depth - 1, number), f"m{n}": N}) for n in range(number)]}


RECURSIVE = {"$defs": {"a": obj({"a": {"$ref": "#/$defs/a"}, "n": N})}, "$ref": "#/$defs/a"}
AMBIGUOUS = {f"a{n}": {"type": ["integer", "array"]} for n in range(19)}
HOSTILE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a number of a million digits": lambda: (obj({"n": N}), {"n": "9" * 990_000}),
    "a list of many slips": lambda: (obj({"l": {"type": "array", "items": N}}), {"l": ["1"] * 100_000}),
    "a list of many slips in text": lambda: (
        obj({"l": {"type": "array", "items": obj({"n": N})}}),
        {"l": '[{"n":"1"},' * 5000},
    ),
    "members that nobody knows": lambda: (
        obj({"n": N}, additionalProperties=False),
        {f"k{n}": n for n in range(10_000)},
    ),
    "members that are all wrong": lambda: (
        {"type": "object", "additionalProperties": N},
        {f"k{n}": "x" for n in range(10_000)},
    ),
    "forms in forms": lambda: (obj({"x": choices(2, 3)}), {"x": {"x": {"x": {"k": [1000]}}}}),
    "two ways for each, and none that fits": lambda: (
        obj({"x": {"anyOf": [obj(AMBIGUOUS | {"z": N}, required=["z"]), {"type": "null"}]}}),
        {"x": dict.fromkeys(AMBIGUOUS, "3")},
    ),
    "hundreds of levels": lambda: (RECURSIVE, '{"a":' * 400 + '{"n":"3"}' + "}" * 400),
    "many levels": lambda: (RECURSIVE, '{"a":' * 90 + '{"n":"x"}' + "}" * 90),
}
"""Functions, because all of this together takes 14 MB in each process that collects tests."""


class Counting:
    """A schema that counts its validations and the violations found."""

    def __init__(self, schema: Any) -> None:
        self._schema = CompiledSchema(json.dumps(schema))
        self.looks = self.found = 0

    def violations(self, value: Any) -> Sequence[Violation]:
        problems = self._schema.violations(value)
        self.looks += 1
        self.found += mending._count(problems)
        return problems

    def __getattr__(self, name: str) -> Any:
        return getattr(self._schema, name)


@pytest.mark.parametrize("name", HOSTILE)
def test_repair_work_is_bounded_for_hostile_arguments(name: str) -> None:
    schema, value = HOSTILE[name]()
    counting: Any = Counting(schema)
    written = value if isinstance(value, str) else json.dumps(value)
    assert counting.can_check
    assert repair_one(written, counting) is None
    assert counting.looks <= MAX_WORK / 10 + 1
    assert counting.found <= MAX_WORK * 2
    assert repair_several(written, counting) == []


def test_repair_work_depends_on_argument_size() -> None:
    looks = []
    for number in (1, 10_000):
        counting: Any = Counting(obj({"l": {"type": "array", "items": N}, "n": N}))
        repair_one(json.dumps({"l": [0] * number, "n": ["x", "y"]}), counting)
        repair_one(json.dumps({"l": ["1"] * number, "n": "3"}), counting)
        looks.append(counting.looks)
    assert 1 < looks[0] < looks[1] < 100


def test_large_arguments_with_one_error_are_repaired() -> None:
    schema = CompiledSchema(json.dumps(obj({"n": N, "content": {"type": "string"}})))
    for content in ("x" * 980_000, "a: b, c;\n" * 8_000):
        found = repair_one(json.dumps({"content": content, "n": "3"}), schema)
        assert found is not None
        assert found.repairs == ("to_number",)
    assert repair_one(json.dumps({"content": "x" * MAX_ARGUMENT_CHARS, "n": "3"}), schema) is None


def test_arguments_with_hundreds_of_errors_are_not_repaired() -> None:
    counting: Any = Counting(obj({f"k{n}": N for n in range(500)}))
    assert repair_one(json.dumps({f"k{n}": "3" for n in range(500)}), counting) is None
    assert counting.looks <= 30


def test_call_with_many_equal_errors_is_repaired() -> None:
    schema = CompiledSchema(json.dumps(obj({"l": {"type": "array", "items": N}})))
    found = repair_one(json.dumps({"l": ["1"] * 45}), schema)
    assert found is not None
    assert json.loads(found.arguments) == {"l": [1] * 45}
