"""Hostile schemas and arguments can neither slow down nor break the validation; exceeded limits are reported."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.guard.arguments import Arguments
from dragoman.guard.validation import validation_cost
from dragoman.guard.validation.compiled_schema import CompiledSchema
from dragoman.guard.validation.validation_cost import value_size
from support import cpu_cost

CPU_LIMIT_S = 2.0
"""Upper bound of CPU time on any machine, in seconds; most cases take a thousandth of it."""


def nested(levels: int, inner: Any, around: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        inner = around(inner)
    return inner


def member(value: Any) -> Any:
    return {"a": value}


def doubling(word: str, times: int, last: Any, **more: Any) -> Any:
    """Returns definitions that each refer to the next one twice."""
    each = {f"d{i}": {word: [{"$ref": f"#/$defs/d{i + 1}"}] * 2, **more} for i in range(times)}
    return {"$ref": "#/$defs/d0", "$defs": {**each, f"d{times}": last}}


def chain(length: int, link: Callable[[Any], Any]) -> Any:
    each = {f"d{i}": link({"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
    return {"$ref": "#/$defs/d0", "$defs": {**each, f"d{length}": {}}}


TEXT = {"type": "string"}
BRANCHES = [
    {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"properties": {"a": {"$ref": "#"}}, "required": ["a"], "minProperties": 1},
    TEXT,
]
RECURSIVE = {"properties": {"a": {"$ref": "#"}}}
ANY = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "object", "additionalProperties": {"$ref": "#"}},
    ]
}

HOSTILE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a reference to itself": lambda: ({"$ref": "#"}, {}),
    "references in a ring": lambda: (
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {},
    ),
    "a choice with itself": lambda: ({"anyOf": [{"$ref": "#"}, TEXT]}, {}),
    "a dynamic reference": lambda: ({"$dynamicAnchor": "a", "properties": {"a": {"$dynamicRef": "#a"}}}, {}),
    "a million times anyOf": lambda: (doubling("anyOf", 20, TEXT), 1),
    "a million times allOf": lambda: (doubling("allOf", 20, TEXT), "a"),
    "a million times what is not evaluated": lambda: (doubling("allOf", 20, {}, unevaluatedProperties=False), {"a": 1}),
    "a million errors in one": lambda: (doubling("anyOf", 13, TEXT), 1),
    "a long chain in place": lambda: (chain(3000, lambda next: next), {}),
    "a long chain of members": lambda: (chain(4000, member), {"a": 1}),
    "twice the work at every level, which fails": lambda: ({"oneOf": BRANCHES}, nested(30, 1, member)),
    "twice the work at every level, which fits": lambda: ({"oneOf": BRANCHES}, nested(30, "x", member)),
    "a deep value and a recursive schema": lambda: (RECURSIVE, nested(900, 1, member)),
    "a deep value and any": lambda: (ANY, nested(40, [1], lambda inner: [inner])),
    "a deep constant": lambda: ({"const": nested(120, 1, member)}, nested(120, 1, member)),
    "thousands required of a large value": lambda: ({"required": [f"r{i}" for i in range(3000)]}, {"a": [1] * 20000}),
    "many errors": lambda: ({"items": TEXT}, list(range(100000))),
    "many parts": lambda: ({"items": RECURSIVE}, [[0] * 100] * 2000),
    "large numbers that must differ": lambda: ({"uniqueItems": True}, [10**300 + i for i in range(1000)]),
    "large numbers, few, that must differ": lambda: ({"uniqueItems": True}, [2**70 + i for i in range(30)]),
    "many numbers to choose from": lambda: ({"items": {"enum": [i + 0.5 for i in range(1000)]}}, [0.25] * 1000),
    "many names to choose from": lambda: ({"enum": [f"name {i}" for i in range(20000)]}, "name"),
    "many forms, many items": lambda: ({"items": {"oneOf": [{"const": i} for i in range(1000)]}}, list(range(1000))),
    "contained thrice": lambda: ({"contains": {"contains": {"contains": {"const": 1}}}}, [[[0] * 100] * 50] * 20),
    "many patterns for many names": lambda: (
        {"patternProperties": {f"^a{i}": {} for i in range(2000)}, "additionalProperties": False},
        {f"b{i}": 1 for i in range(2000)},
    ),
    "a tiny divisor": lambda: ({"items": {"multipleOf": 1e-300}}, [10**4000] * 50),
    "a length beyond reason": lambda: ({"minLength": 10**18, "maxLength": 10**30}, "a"),
    "many parts of a schema": lambda: ({"properties": {f"p{i}": TEXT for i in range(9000)}}, {"p1": 1}),
    "half a surrogate in a name": lambda: ({"properties": {"\ud800": TEXT}}, {}),
}
"""Functions, because all of this together takes 14 MB in each process that collects tests."""


@pytest.mark.parametrize("name", HOSTILE)
def test_validation_time_is_bounded_for_hostile_input(name: str) -> None:
    schema, value = HOSTILE[name]()
    text, arguments = json.dumps(schema), json.dumps(value)
    with cpu_cost.measured() as taken:
        made = CompiledSchema(text)
        fits = Arguments(arguments).valid(made)
        problems = made.violations(value)
    assert taken[0] < CPU_LIMIT_S
    assert bool(problems) == (fits is False)
    if fits is None:
        assert made.reason_unchecked(value), "expected a reason"


@pytest.mark.parametrize("levels", [100, 1000, 20_000])
def test_deep_value_is_rejected_without_error(levels: int) -> None:
    """Python values may be as deep as memory allows; the JSON reader rejects deep texts."""
    for schema, around in ((RECURSIVE, member), (ANY, member), (ANY, lambda inner: [inner])):
        made, value = CompiledSchema(json.dumps(schema)), nested(levels, 1, around)
        assert made.reason_unchecked(value) == "the value cannot be checked: it has more than 48 levels"
        assert made.violations(value) == ()
        assert Arguments('{"a":' * levels + "1" + "}" * levels).valid(made) is None
        while value != 1:  # Python cannot deallocate a value of this depth recursively
            value = value["a"] if isinstance(value, dict) else value[0]


def test_deep_value_and_schema_together_do_not_overflow_stack() -> None:
    """In a thread with the smallest stack, with nested `anyOf` at each level of the value."""
    links = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(28)}
    last = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}
    made = CompiledSchema(json.dumps({"$ref": "#/$defs/d0", "$defs": {**links, "d28": last}}))
    told: list[Any] = []

    def check() -> None:
        for levels in range(2, 47):
            value = nested(levels, 1, member)
            told.append(
                (Arguments(json.dumps(value)).valid(made), len(made.violations(value)), made.reason_unchecked(value))
            )

    before = threading.stack_size(512 * 1024)
    try:
        thread = threading.Thread(target=check)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert told[:5] == [(False, 1, "")] * 5
    assert told[-1] == (None, 0, "the value cannot be checked: it has too many levels for its schema")


def test_deep_schema_is_compiled_without_error() -> None:
    for levels in (100, 1000, 100_000):
        for word in ("not", "items", "additionalProperties", "if"):
            for inner in ("{}", '{"pattern": "("}'):
                made = CompiledSchema(f'{{"{word}":' * levels + inner + "}" * levels)
                assert (Arguments("{}").valid(made) is None) is not made.can_check


def test_realistic_recursive_schema_is_validated() -> None:
    """Trees of conditions, and schemas for any JSON, at realistic depths."""
    tree = {
        "$defs": {
            "of": {
                "anyOf": [
                    {"properties": {"and": {"type": "array", "items": {"$ref": "#/$defs/of"}}}, "required": ["and"]},
                    {"properties": {"or": {"type": "array", "items": {"$ref": "#/$defs/of"}}}, "required": ["or"]},
                    {"properties": {"field": TEXT, "is": {}}, "required": ["field"]},
                ]
            }
        },
        "properties": {"where": {"$ref": "#/$defs/of"}},
    }
    made = CompiledSchema(json.dumps(tree))
    for key, fits in (("field", True), ("feld", False)):
        value = {"where": nested(8, {key: "x", "is": 1}, lambda inner: {"and": [inner, {"or": [inner]}]})}
        assert Arguments(json.dumps(value)).valid(made) is fits
        assert bool(made.violations(value)) is not fits
    assert (
        Arguments(json.dumps(nested(20, [1, None], lambda inner: {"a": [inner, "x"]}))).valid(
            CompiledSchema(json.dumps(ANY))
        )
        is True
    )


def test_first_violation_is_reported_if_there_are_too_many() -> None:
    (problem,) = CompiledSchema('{"items": {"type": "string"}}').violations([*["a"] * 50000, 1])
    assert problem.path == (50000,)
    (problem,) = CompiledSchema('{"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}').violations([1] * 50000)
    assert (problem.kind, problem.message) == ("other", "does not fit the schema")


def test_references_by_id_and_anchor_are_resolved() -> None:
    schema = {
        "$id": "https://example.com/root.json",
        "$defs": {
            "a": {"$id": "parts/a.json", "$defs": {"b": {"$anchor": "b", "type": "integer"}}, "$ref": "#b"},
            "c~/%": {"$anchor": "c", "type": "string"},
        },
        "properties": {
            "a": {"$ref": "parts/a.json"},
            "b": {"$ref": "https://example.com/parts/a.json#b"},
            "c": {"$ref": "#c"},
            "d": {"$ref": "#/$defs/c~0~1%25"},
            "e": {"$ref": "root.json#/properties/a"},
        },
    }
    made = CompiledSchema(json.dumps(schema))
    assert made.reason == ""
    problems = made.violations(dict.fromkeys("abcde", None))
    assert [problem.schema["type"] for problem in problems] == [problem.expected[0] for problem in problems]
    assert sorted((problem.path, problem.expected) for problem in problems) == [
        (("a",), ("integer",)),
        (("b",), ("integer",)),
        (("c",), ("string",)),
        (("d",), ("string",)),
        (("e",), ("integer",)),
    ]
    assert made.schema_at(("e",)) == {"$anchor": "b", "type": "integer"}
    twice = {"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x", "type": "null"}}, "$ref": "#x"}
    assert CompiledSchema(json.dumps(twice)).reason.endswith("it has two parts of one name")


def test_value_size_is_computed_per_level() -> None:
    assert value_size({"a": [1, {"b": "x" * 640}], "c" * 64: None}).levels == (2, 2, 2, 11)
    assert value_size([2**64, 2**64 - 1, 10**300]).big_numbers == (2, 1 + 15)
    assert value_size([1, [2]]).subtree_sizes == [4, 3, 1]
    with pytest.raises(validation_cost.UnboundedCheck):
        value_size([[0] * 60000] * 2)
