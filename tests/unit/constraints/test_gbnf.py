"""GBNF: the JSON that a schema's grammar accepts, and keywords that it reports as relaxed."""

import json
from typing import Any

import pytest

from dragoman.constraints.constraint import ConstrainedCall, Constraint
from dragoman.constraints.gbnf import Gbnf, to_gbnf
from dragoman.constraints.grammar import JsonValue, RawText
from dragoman.constraints.llguidance import llguidance_grammar
from dragoman.constraints.structural_tag import to_structural_tag
from support.grammar_engines import accepts


def of(schema: Any) -> Gbnf:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return to_gbnf(
        Constraint("", ("", ""), (ConstrainedCall("", JsonValue(text, arguments=True), ""),), "", parallel=False)
    )


def props(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
NODE = {"type": "object", "properties": {"next": {"$ref": "#"}, "v": INTEGER}}
MIXED = {"properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER}, "required": ["c"]}
ACCEPTED: list[tuple[str, Any, list[str], list[str]]] = [
    ("any object", {}, ["{}", '{"a": [1, {"b": null}], "c":"d"}'], ["1", "[]", '{"a":  1}', '{"a": 1,}']),
    ("not JSON Schema", "[", ["{}"], ["1"]),
    ("a schema that is true", True, ["{}"], ["1"]),
    ("no members", {"type": "object", "additionalProperties": False}, ["{}"], ['{"a": 1}']),
    ("values of one kind", {"additionalProperties": INTEGER}, ["{}", '{"a": 1, "b": 2}'], ['{"a": "x"}']),
    (
        "strings",
        props(a=STRING),
        [r'{"a": "é\n\"\u00e9 \/"}', '{"a": ""}'],
        ['{"a": "\n"}', r'{"a": "\x"}', '{"a": 1}'],
    ),
    (
        "long strings",
        props(a=STRING | {"minLength": 2, "maxLength": 3}),
        ['{"a": "xyz"}'],
        ['{"a": "x"}', '{"a": "wxyz"}'],
    ),
    ("integers", props(a=INTEGER), ['{"a": -10}', '{"a": 0}'], ['{"a": 01}', '{"a": 1.0}', '{"a": "1"}']),
    (
        "numbers",
        props(a={"type": "number"}),
        ['{"a": -1.5e-07}', '{"a": 1E9}'],
        ['{"a": .5}', '{"a": 1.}', '{"a": NaN}'],
    ),
    ("flags", props(a={"type": "boolean"}), ['{"a": true}'], ['{"a": True}', '{"a": null}']),
    ("two types", props(a={"type": ["string", "null"]}), ['{"a": null}', '{"a": ""}'], ['{"a": 1}']),
    ("nullable", props(a=INTEGER | {"nullable": True}), ['{"a": null}', '{"a": 1}'], ['{"a": ""}']),
    ("enum", props(a={"enum": ["x", 1, None, {"b": 2}]}), ['{"a": "x"}', '{"a": {"b": 2}}'], ['{"a": "y"}']),
    ("const", props(a={"const": 'q"\n\\'}), [r'{"a": "q\"\n\\"}'], ['{"a": "q"}']),
    ("either", props(a={"anyOf": [INTEGER, {"type": "array"}]}), ['{"a": 1}', '{"a": [true]}'], ['{"a": ""}']),
    ("one of", props(a={"oneOf": [INTEGER, STRING]}), ['{"a": 1}', '{"a": ""}'], ['{"a": null}']),
    ("arrays", props(a={"items": INTEGER}), ['{"a": []}', '{"a": [1, 2,3]}'], ['{"a": [""]}', '{"a": [1,]}']),
    (
        "some",
        props(a={"items": INTEGER, "minItems": 2, "maxItems": 3}),
        ['{"a": [1, 2]}'],
        ['{"a": [1]}', '{"a": [1,2,3,4]}'],
    ),
    ("at least one", props(a={"items": INTEGER, "minItems": 1}), ['{"a": [1, 2]}'], ['{"a": []}']),
    ("none", props(a={"type": "array", "maxItems": 0}), ['{"a": []}'], ['{"a": [1]}']),
    (
        "required in the middle",
        MIXED,
        ['{"c": 1}', '{"a": 1, "c": 2}', '{"b": 1, "c": 2, "d": 3}'],
        ["{}", '{"a": 1}', '{"d": 1, "c": 1}'],
    ),
    ("nothing required", NODE, ["{}", '{"v": 1}', '{"next": {"next": {}}, "v": 2}'], ['{"next": 1}', '{"v": 1,}']),
    ("required, not stated", {"required": ["a"]}, ['{"a": [1]}'], ["{}"]),
    ("odd names", props(**{'"\n\\é': INTEGER}), [r'{"\"\n\\é": 1}'], ["{}"]),
]


@pytest.mark.parametrize(("schema", "fits", "others"), [r[1:] for r in ACCEPTED], ids=[r[0] for r in ACCEPTED])
def test_gbnf_accepts_only_matching_json(schema: Any, fits: list[str], others: list[str]) -> None:
    found = of(schema)
    assert found.relaxed == ()
    assert [text for text in fits if not accepts(found.grammar, text)] == []
    assert [text for text in others if accepts(found.grammar, text)] == []


RAW: list[tuple[str, tuple[str, ...], list[str], list[str]]] = [
    ("</p>", (), ["</p>", "a</</p>", "\n<\n</p>"], ["", "</p", "</p></p>"]),
    ("</p>", ("</function>", "\n<p"), ["</f</p>", "<p\n</p>", "</functio\n</p>"], ["</function></p>", "a\n<p></p>"]),
    ("\n</p>", ("</p>",), ["\n</p>", "a\n\n</p>"], ["</p>\n</p>", "\n</p>\n</p>"]),
    ('<|"|>', (), ['<|"|>', '"<|"<|"|>'], ['<|"|><|"|>']),
    ("]-^]", ("\\[",), ["]-]-^]", "[\\]-^]"], ["\\[]-^]", "]-^]]-^]"]),
    ("aab", ("aac",), ["aaab", "aaaab"], ["aacaab", "aabaab"]),
]


@pytest.mark.parametrize(("end", "never", "fits", "others"), RAW)
def test_raw_text_ends_at_first_end_marker(
    end: str, never: tuple[str, ...], fits: list[str], others: list[str]
) -> None:
    constraint = Constraint("", ("", ""), (ConstrainedCall("", RawText(end, never), ""),), "", parallel=False)
    for grammar in (to_gbnf(constraint).grammar, llguidance_grammar(constraint), to_structural_tag(constraint)):
        assert [text for text in fits if not accepts(grammar, text)] == []
        assert [text for text in others if accepts(grammar, text)] == []


RING = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}, INTEGER]}}}
RELAXED: list[tuple[str, Any, str]] = [
    ("pattern", props(a=STRING | {"pattern": "^x$", "format": "date"}), '{"a": "y"}'),
    ("minimum", props(a=INTEGER | {"minimum": 3}), '{"a": 1}'),
    ("maxLength", props(a=STRING | {"maxLength": 100_000}), '{"a": "x"}'),
    ("minLength", props(a=STRING | {"minLength": "3"}), '{"a": "x"}'),
    ("type", props(a={"type": "objekt"}), '{"a": [1]}'),
    ("allOf", props(a={"allOf": [STRING]}), '{"a": 1}'),
    ("anyOf", {"properties": {"a": INTEGER}, "anyOf": [{"required": ["a"]}]}, "{}"),
    ("additionalProperties", {"properties": {"a": INTEGER}, "additionalProperties": STRING}, '{"a": 1}'),
    ("$ref", props(a={"$ref": "https://example.com/x.json"}), '{"a": 1}'),
    ("$ref", {"$ref": "#/$defs/none"}, "{}"),
    ("$ref", {"$ref": "#"}, "{}"),
    ("$ref", props(a={"$ref": "#/$defs/a"}) | RING, '{"a": 1}'),
]


@pytest.mark.parametrize(("word", "schema", "through"), RELAXED, ids=[row[0] for row in RELAXED])
def test_relaxed_keywords_are_reported(word: str, schema: Any, through: str) -> None:
    found = of(schema)
    assert word in found.relaxed
    assert accepts(found.grammar, through)
    assert not accepts(found.grammar, "1")


def test_deeply_nested_schema_is_relaxed() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(200):
        schema = props(a=schema)
    assert of(schema).relaxed == ("depth",)


def test_grammar_size_is_bounded_for_many_optional_members() -> None:
    schema = {"properties": {f"member{i}": INTEGER for i in range(300)}}
    assert len(of(schema).grammar) < 60_000
