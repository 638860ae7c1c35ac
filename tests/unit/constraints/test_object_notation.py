"""Calls in object notations (Python, Gemma) under a grammar: accepted arguments, and reported relaxations."""

import json
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.backends.embedded.grammar import tools_grammar
from dragoman.constraints.gbnf import to_gbnf
from dragoman.constraints.llguidance import llguidance_grammar
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core import messages as v
from support.grammar_engines import accepts

ONE = v.ToolChoice("required", parallel_tool_calls=False)
INTEGER, STRING = {"type": "integer"}, {"type": "string"}
LIST = {"type": "array", "items": {"type": "object", "properties": {"n": INTEGER, "t": {"type": ["string", "null"]}}}}
FITS: list[tuple[str, Any, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("nothing", {"additionalProperties": False}, [{}], [{"a": 1}]),
    ("in order", {"properties": {"a": INTEGER, "b": STRING}}, [{}, {"a": 1, "b": "x"}, {"b": ""}], [{"a": ""}]),
    (
        "required",
        {"properties": {"a": {}, "b": {}}, "required": ["b"]},
        [{"b": [{}]}, {"a": None, "b": -1.5}],
        [{"a": 1}],
    ),
    ("flags", {"properties": {"a": {"type": "boolean"}}}, [{"a": True}, {"a": False}], [{"a": 1}, {"a": "True"}]),
    (
        "nested",
        {"properties": {"a": LIST}},
        [{"a": []}, {"a": [{"n": 1, "t": None}, {"t": "x"}]}],
        [{"a": [{"n": "x"}]}],
    ),
    ("some", {"properties": {"a": LIST | {"minItems": 1, "maxItems": 2}}}, [{"a": [{}]}], [{"a": []}, {"a": [{}] * 3}]),
    (
        "words",
        {"properties": {"a": {"enum": ["x", 2, None, [1.5]]}}},
        [{"a": "x"}, {"a": [1.5]}],
        [{"a": "y"}, {"a": "2"}],
    ),
    ("any names", {"additionalProperties": INTEGER}, [{}, {"a": 1, "b_2": 2}], [{"a": "x"}]),
    ("any object", {"properties": {"a": {"type": "object"}}}, [{"a": {"x": {"y": [True]}}}, {"a": {}}], [{"a": []}]),
    ("itself", {"properties": {"a": {"$ref": "#"}}}, [{"a": {"a": {}}}], [{"a": {"a": 1}}]),
    (
        "odd names",
        {"properties": {"a": {"type": "object", "properties": {'"\n': {}}}}},
        [{"a": {'"\n': 1}}],
        [{"a": {"b": 1}}],
    ),
]


@pytest.mark.parametrize("format", ["pythonic", "lfm2", "olmo3", "gemma4", "functiongemma"])
@pytest.mark.parametrize(("schema", "fits", "others"), [row[1:] for row in FITS], ids=[row[0] for row in FITS])
def test_notation_arguments_are_accepted_only_if_valid(
    format: str, schema: Any, fits: list[Any], others: list[Any]
) -> None:
    made, tool = formats.get(format), v.Tool("f", "", json.dumps(schema))
    constraint = made.constrain([tool], ONE)
    assert constraint is not None
    assert constraint.calls[0].relaxed == ()

    def written(arguments: Any) -> str:
        return made.section[0] + made.write_call(v.ToolCall("", "f", json.dumps(arguments))) + made.section[1]

    for arguments in fits:
        (call,) = parse(written(arguments), format, [tool]).parts
        assert json.loads(call.arguments) == arguments  # type: ignore[union-attr]
    for grammar in (to_structural_tag(constraint), to_gbnf(constraint).grammar, llguidance_grammar(constraint)):
        assert [arguments for arguments in fits if not accepts(grammar, written(arguments))] == []
        assert [arguments for arguments in others if accepts(grammar, written(arguments))] == []


@pytest.mark.parametrize(("format", "first"), [("pythonic", "b"), ("gemma4", "A")])
def test_members_are_in_order_of_schema_or_format(format: str, first: str) -> None:
    schema = {"properties": {"b": INTEGER, "A": INTEGER}, "required": ["b", "A"]}
    constraint = formats.get(format).constrain([v.Tool("f", "", json.dumps(schema))], ONE)
    assert constraint is not None
    for arguments in ('{"b": 1, "A": 2}', '{"A": 2, "b": 1}'):
        text = formats.get(format).write_call(v.ToolCall("", "f", arguments))
        whole = "".join((constraint.wrapper[0], text, constraint.wrapper[1]))
        begins = text.partition("f")[2][1] == first
        assert [accepts(write(constraint), whole) for write in (to_structural_tag, llguidance_grammar)] == [
            begins,
            begins,
        ]


RELAXED: list[tuple[str, str, Any]] = [
    ("pythonic", "maxLength", STRING | {"maxLength": 3}),
    ("gemma4", "pattern", STRING | {"pattern": "x"}),
    ("gemma4", "enum", {"enum": ['<|"|>']}),
    ("pythonic", "uniqueItems", {"type": "array", "uniqueItems": True}),
    ("pythonic", "$ref", {"$ref": "https://example.com/x.json"}),
]


@pytest.mark.parametrize(("format", "word", "schema"), RELAXED)
def test_relaxed_keywords_are_reported(format: str, word: str, schema: Any) -> None:
    tool = v.Tool("f", "", json.dumps({"properties": {"a": schema}}))
    constraint = formats.get(format).constrain([tool], ONE)
    assert constraint is not None
    assert constraint.calls[0].relaxed == (word,)


def test_argument_that_is_not_a_python_name_is_relaxed() -> None:
    tool = v.Tool("f", "", json.dumps({"properties": {"a b": {}, "c": {}}, "required": ["a b"]}))
    constraint = formats.get("pythonic").constrain([tool], ONE)
    assert constraint is not None
    assert constraint.calls[0].relaxed == ("properties",)
    assert accepts(to_gbnf(constraint).grammar, "[f(c=1)]")


@pytest.mark.parametrize("format", ["pythonic", "gemma4"])
def test_unreadable_schema_is_relaxed_to_any_object(format: str) -> None:
    made = formats.get(format)
    found = tools_grammar(made, [v.Tool("f", "", "[")], ONE)
    assert found is not None
    assert [*found.relaxed] == ["f"]
    text = made.section[0] + made.write_call(v.ToolCall("", "f", '{"a": "x"}')) + made.section[1]
    assert accepts(found.text, text)


def test_pythonic_optional_calls_are_not_constrained() -> None:
    assert formats.get("pythonic").constrain([v.Tool("f")], v.ToolChoice("auto")) is None


SELF_REFERENCES = [{"$ref": "#/properties/a"}] * 4
NESTED: dict[str, Any] = {"type": "string"}
for _ in range(100):
    NESTED = {"type": "array", "items": NESTED}


@pytest.mark.parametrize("format", ["qwen3_xml", "glm", "deepseek_v32", "pythonic", "gemma4", "hermes"])
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"allOf": SELF_REFERENCES}}},
        {"properties": {"a": {"anyOf": SELF_REFERENCES}}},
        {"anyOf": [{"$ref": "#"}] * 4},
        {"allOf": [{"$ref": "#"}] * 4, "properties": {"a": {}}},
        {"properties": {"a": NESTED}},
        {"properties": {"a": {"type": 5}}},
    ],
    ids=["all of itself", "any of itself", "any of all of it", "all of all of it", "deep arrays", "no type"],
)
def test_recursive_schemas_have_small_grammars(format: str, schema: Any) -> None:
    """Tools can come from untrusted clients: work that is repeated at each level would grow exponentially."""
    made, tool = formats.get(format), v.Tool("f", "", json.dumps(schema))
    constraint = made.constrain([tool], ONE)
    assert constraint is not None
    assert len(to_gbnf(constraint).grammar) < 20_000
    assert len(to_structural_tag(constraint)) < 20_000
    assert len(llguidance_grammar(constraint)) < 20_000
    (call,) = parse(
        made.section[0] + made.write_call(v.ToolCall("", "f", '{"a": [[]]}')) + made.section[1], format, [tool]
    ).parts
    assert isinstance(call, v.ToolCall)
    assert json.loads(call.arguments)["a"] in ([[]], "[[]]")
