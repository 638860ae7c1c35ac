"""Nested values under a grammar: accepted values, how they are read, and reported relaxations."""

import json
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import to_gbnf
from dragoman.constraints.llguidance import llguidance_grammar
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core import messages as v
from support.grammar_engines import accepts

ONE = v.ToolChoice("required", parallel_tool_calls=False)
STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
POINT = {"type": "object", "properties": {"x": INTEGER, "s": STRING}, "required": ["x"]}
each_nested_format = pytest.mark.parametrize("format", ["minimax_m3", "cohere_cofl"])


def constrained(format: str, schema: Any) -> tuple[Constraint, v.Tool]:
    nodes = {"n": INTEGER, "list": {"anyOf": [NULL, {"items": {"$ref": "#/$defs/list"}}]}}
    tool = v.Tool("f", "", json.dumps({"properties": {"a": schema}, "required": ["a"], "$defs": nodes}))
    found = formats.get(format).constrain([tool], ONE)
    assert found is not None
    return found, tool


def written(format: str, arguments: Any) -> str:
    return formats.get(format).write_calls([v.ToolCall("", "f", json.dumps(arguments, ensure_ascii=False))])


def accepted_by_engines(constraint: Constraint, text: str) -> list[bool]:
    return [
        accepts(g, text)
        for g in (to_structural_tag(constraint), to_gbnf(constraint).grammar, llguidance_grammar(constraint))
    ]


def read(format: str, text: str, tool: v.Tool) -> Any:
    (call,) = parse(text, format, [tool]).parts
    assert isinstance(call, v.ToolCall)
    return json.loads(call.arguments)


VALUES: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("a string", STRING, ["", " ", "1", "null", '{"x": 1}', "<a>\n</a>", "]<"], [["x"], {"x": 1}]),
    ("a number", INTEGER, [-12, 0], [1.5, "x", "", [1]]),
    ("a flag", {"type": "boolean"}, [True, False], [1, "yes"]),
    ("an object", POINT, [{"x": 1}, {"x": 1, "s": "1"}], [{}, {"s": "1"}, {"s": "1", "x": 1}, {"x": "y"}, 1, "x"]),
    ("an empty one", {"properties": {"x": INTEGER}}, [{}, {"x": 1}], [{"y": 1}, [1], "x"]),
    ("an array", {"items": POINT}, [[], [{"x": 1}], [{"x": 1, "s": ""}, {"x": 2}]], [[{}], [1], {"x": 1}]),
    ("some", {"items": STRING, "minItems": 1, "maxItems": 2}, [["1"], ["a", ""]], [[], ["a", "b", "c"]]),
    ("none", {"type": "array", "maxItems": 0}, [[]], [[1]]),
    ("arrays of arrays", {"items": {"items": INTEGER}}, [[[1, 2], [], [3]]], [[1], [["x"]]]),
    ("words", {"enum": ["on", "off", "0n"]}, ["on", "off"], ["of", "onoff", 1]),
    ("words and others", {"enum": ["a", 1, None, True]}, ["a", 1, None, True], ["b", 2, False]),
    ("number or nothing", {"anyOf": [INTEGER, NULL]}, [None, 3], ["x", [3]]),
    ("object or nothing", {"anyOf": [POINT, NULL]}, [None, {"x": 1}], [{}, "x", 1]),
    ("array or object", {"anyOf": [{"items": INTEGER}, POINT]}, [[], [1], {"x": 1}], ["x", [""], {}]),
    ("anything", {}, ["x", 1, None, [1, ["x", {}], {"b": {"c": None}}], {"b": [True]}], []),
    ("any array", {"type": "array"}, [[], [1, "x", [None]]], [1, "x"]),
    ("by reference", {"$ref": "#/$defs/n"}, [3], ["x", [3]]),
    ("within itself", {"$ref": "#/$defs/list"}, [None, [], [None, [None]]], [1, [1]]),
    ("shared", {"properties": {"p": POINT, "q": {"items": POINT}}}, [{"p": {"x": 1}, "q": [{"x": 2}]}], [{"p": 1}]),
]


@each_nested_format
@pytest.mark.parametrize(("schema", "fits", "others"), [r[1:] for r in VALUES], ids=[r[0] for r in VALUES])
def test_nested_values_are_accepted_only_if_valid(format: str, schema: Any, fits: list[Any], others: list[Any]) -> None:
    constraint, tool = constrained(format, schema)
    for value in fits:
        text = written(format, {"a": value})
        assert accepted_by_engines(constraint, text) == [True] * 3, value
        assert read(format, text, tool) == {"a": value}
    assert [value for value in others if any(accepted_by_engines(constraint, written(format, {"a": value})))] == []


@each_nested_format
def test_string_must_not_contain_its_end_marker(format: str) -> None:
    constraint, _ = constrained(format, STRING)
    end = {"minimax_m3": "]<]minimax[>[", "cohere_cofl": "</cofl:value>"}[format]
    assert not any(accepted_by_engines(constraint, written(format, {"a": f"x{end}y"})))
    assert not any(accepted_by_engines(constraint, written(format, {"a": end})))


@pytest.mark.parametrize(
    ("schema", "value"), [({"type": "object"}, {}), ({"type": "array"}, []), ({"properties": {"x": STRING}}, {})]
)
def test_empty_element_is_empty_object_or_array(schema: Any, value: Any) -> None:
    """The vendor's template writes an empty object or array like this."""
    constraint, tool = constrained("minimax_m3", schema)
    text = written("minimax_m3", {"a": "@"}).replace("@", "")
    assert accepted_by_engines(constraint, text) == [True] * 3
    assert read("minimax_m3", text, tool) == {"a": value}


@each_nested_format
def test_undeclared_members_are_accepted(format: str) -> None:
    tool = v.Tool("f", "", '{"type": "object", "additionalProperties": {"type": "integer"}}')
    constraint = formats.get(format).constrain([tool], ONE)
    assert constraint is not None
    for arguments in ({}, {"a": 1}, {"a": 1, "b_2": 2}):
        assert accepted_by_engines(constraint, written(format, arguments)) == [True] * 3
        assert read(format, written(format, arguments), tool) == arguments
    assert not any(accepted_by_engines(constraint, written(format, {"a": "x"})))
    # A grammar cannot enforce that the closing tag has the same name.
    assert constraint.calls[0].relaxed == (() if format == "cohere_cofl" else ("additionalProperties",))


def test_unusual_member_names_are_accepted_or_relaxed() -> None:
    odd = {"a b": 1, 'q&a "x"': 2, "<c>": 3}
    tool = v.Tool("f", "", json.dumps({"properties": dict.fromkeys(odd, INTEGER), "required": [*odd]}))
    constraint = formats.get("cohere_cofl").constrain([tool], ONE)
    assert constraint is not None
    assert accepted_by_engines(constraint, written("cohere_cofl", odd)) == [True] * 3
    assert read("cohere_cofl", written("cohere_cofl", odd), tool) == odd
    elements = formats.get("minimax_m3").constrain([tool], ONE)
    assert elements is not None
    assert elements.calls[0].relaxed == ("properties",)
    assert accepted_by_engines(elements, written("minimax_m3", {"a b": 1})) == [True] * 3


RELAXED: list[tuple[str, list[str], Any]] = [
    ("pattern", ["minimax_m3", "cohere_cofl"], STRING | {"pattern": "x"}),
    ("maxLength", ["minimax_m3", "cohere_cofl"], {"items": STRING | {"maxLength": 3}}),
    ("uniqueItems", ["minimax_m3", "cohere_cofl"], {"items": STRING, "uniqueItems": True}),
    ("additionalProperties", ["minimax_m3", "cohere_cofl"], POINT | {"additionalProperties": INTEGER}),
    ("additionalProperties", ["minimax_m3"], {"type": "object"}),
    ("$ref", ["minimax_m3", "cohere_cofl"], {"$ref": "https://example.com/x.json"}),
    ("$ref", ["minimax_m3", "cohere_cofl"], {"$ref": "#/properties/a"}),
    ("type", ["minimax_m3"], {"type": ["string", "integer"]}),
    ("type", ["minimax_m3"], {"type": ["string", "array"], "items": INTEGER}),
    ("type", ["minimax_m3"], {"type": ["object", "integer"], "properties": {"x": INTEGER}}),
    ("type", ["minimax_m3"], {"anyOf": [{"properties": {"x": INTEGER}}, {"properties": {"x": STRING}}]}),
    ("properties", ["minimax_m3"], {"anyOf": [{"items": INTEGER}, {"properties": {"item": STRING}}]}),
    ("enum", ["minimax_m3"], {"enum": ["]<]minimax[>["]}),
    ("enum", ["cohere_cofl"], {"enum": ["</cofl:value>"]}),
]


@each_nested_format
@pytest.mark.parametrize(("word", "where", "schema"), RELAXED)
def test_relaxed_keywords_are_reported(format: str, word: str, where: list[str], schema: Any) -> None:
    relaxed = constrained(format, schema)[0].calls[0].relaxed
    assert (word in relaxed) == (format in where), relaxed


@each_nested_format
def test_enforced_keywords_are_not_reported(format: str) -> None:
    for schema in (STRING, POINT, {"items": POINT}, INTEGER | {"minimum": 1}, {"enum": ["a", 1]}):
        assert constrained(format, schema)[0].calls[0].relaxed == ()


@each_nested_format
def test_deeply_nested_schema_is_relaxed(format: str) -> None:
    schema: dict[str, Any] = STRING
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    assert "depth" in constrained(format, schema)[0].calls[0].relaxed


@each_nested_format
def test_shared_definitions_are_written_once(format: str) -> None:
    nodes: dict[str, Any] = {
        f"n{i}": {"properties": {name: {"$ref": f"#/$defs/n{i + 1}"} for name in ("a", "b", "c")}} for i in range(20)
    }
    tool = v.Tool("f", "", json.dumps({"properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": nodes | {"n20": INTEGER}}))
    constraint = formats.get(format).constrain([tool], ONE)
    assert constraint is not None
    assert len(to_gbnf(constraint).grammar) < 30_000
