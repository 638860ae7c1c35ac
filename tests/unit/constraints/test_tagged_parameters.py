"""Tagged parameters under a grammar: accepted values, how they are read, and reported relaxations."""

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
STRING, INTEGER = {"type": "string"}, {"type": "integer"}
VALUES: list[tuple[str, str, Any, list[tuple[str, Any]], list[str]]] = [
    ("a string", "qwen3_xml", STRING, [("", ""), ("1", "1"), ("<p\n\n", "<p\n\n")], ["a</parameter>b", "</function>"]),
    ("a number", "qwen3_xml", INTEGER, [("-12", -12)], ["x", "1.5", "", '"1"']),
    ("a flag", "glm", {"type": "boolean"}, [("true", True)], ["True", "yes", "1"]),
    ("an object", "glm", {"properties": {"n": INTEGER}}, [('{"n": 1}', {"n": 1})], ['{"n": "</arg_value>"}', "x"]),
    ("words", "qwen3_xml", {"enum": ["on", "off"]}, [("on", "on")], ["of", "onoff", '"on"']),
    ("words and others", "qwen3_xml", {"enum": ["a", 1, None]}, [("a", "a"), ("1", 1), ("null", None)], ["b", "2"]),
    ("two that look alike", "qwen3_xml", {"enum": ["1", 1]}, [("1", 1)], ["2"]),
    ("one begins another", "qwen3_xml", {"enum": ["a", "a</p"]}, [("a", "a"), ("a</p", "a</p")], ["a<"]),
    ("perhaps", "glm", {"type": ["string", "null"]}, [("null", None), ("x", "x")], ["</arg_value>"]),
    ("number or nothing", "glm", {"anyOf": [INTEGER, {"type": "null"}]}, [("null", None), ("3", 3)], ["x", '"x"']),
    ("anything", "glm", {}, [("x", "x"), ("[1]", [1]), ('"x"', "x"), (" 5 ", 5)], ["</tool_call>"]),
    ("by reference", "glm", {"$ref": "#/$defs/n"}, [("3", 3)], ["x"]),
    ("within a reference", "glm", {"items": {"$ref": "#/$defs/n"}}, [("[3, 4]", [3, 4])], ['["x"]', "3"]),
    (
        "in quotes",
        "minicpm5",
        STRING,
        [("<![CDATA[</param>]]>", "</param>"), ("]]>", "]]>"), ("<a", "<a")],
        ["</param>"],
    ),
    ("nothing known", "qwen3_xml", {"type": "objekt"}, [("{}", {}), ("x", "x"), ("3", 3)], ["</function>"]),
    ("a type of Python's", "glm", {"type": "float"}, [("3.14", 3.14)], ["x", '"3"']),
    ("a union in one name", "qwen3_xml", {"type": "int | None"}, [("3", 3), ("null", None)], ["x"]),
    ("a list of a known type", "glm", {"type": "List[int]"}, [("[3]", [3])], ['["x"]', "3"]),
    ("a name for anything", "glm", {"type": "any"}, [("x", "x"), ("[1]", [1])], ["</tool_call>"]),
]


def written(format: str, value: str) -> str:
    """Returns a call with this value, verbatim."""
    made = formats.get(format)
    return made.section[0] + made.write_call(v.ToolCall("", "f", '{"a": "@@"}')).replace("@@", value) + made.section[1]


def constrained(format: str, schema: Any) -> Any:
    root = {"properties": {"a": schema}, "required": ["a"], "$defs": {"n": INTEGER}}
    tool = v.Tool("f", "", json.dumps(root))
    found = formats.get(format).constrain([tool], ONE)
    assert found is not None
    return found, tool


@pytest.mark.parametrize(("format", "schema", "fits", "others"), [r[1:] for r in VALUES], ids=[r[0] for r in VALUES])
def test_tagged_values_are_accepted_only_if_valid(
    format: str, schema: Any, fits: list[tuple[str, Any]], others: list[str]
) -> None:
    constraint, tool = constrained(format, schema)
    for grammar in (to_structural_tag(constraint), to_gbnf(constraint).grammar, llguidance_grammar(constraint)):
        for text, value in fits:
            assert accepts(grammar, written(format, text)), text
            (call,) = parse(written(format, text), format, [tool]).parts
            assert json.loads(call.arguments) == {"a": value}  # type: ignore[union-attr]
        assert [text for text in others if accepts(grammar, written(format, text))] == []


RELAXED: list[tuple[str, Any]] = [
    ("pattern", STRING | {"pattern": "x"}),
    ("maxLength", STRING | {"maxLength": 3}),
    ("type", {"type": ["string", "integer"]}),
    ("type", {"anyOf": [{"enum": [1, 2]}, STRING]}),
    ("type", {"type": "objekt"}),
    ("enum", {"enum": ["</parameter>"]}),
    ("$ref", {"$ref": "https://example.com/x.json"}),
    ("$ref", {"$ref": "#/properties/a"}),
]


@pytest.mark.parametrize(("word", "schema"), RELAXED)
def test_relaxed_keywords_are_reported(word: str, schema: Any) -> None:
    constraint, _ = constrained("qwen3_xml", schema)
    assert word in constraint.calls[0].relaxed
    assert word in to_gbnf(constraint).relaxed


SHAPES: list[tuple[str, Any, list[list[str]], list[list[str]]]] = [
    ("required", {"properties": {"a": {}, "b": {}}, "required": ["b"]}, [["b"], ["a", "b"]], [[], ["a"], ["b", "a"]]),
    ("all of", {"allOf": [{"properties": {"a": {}}}, {"required": ["a"]}]}, [["a"]], [[], ["b"]]),
    ("a reference", {"$ref": "#/$defs/x", "$defs": {"x": {"properties": {"a": {}}}}}, [[], ["a"]], [["b"]]),
    ("none", {"additionalProperties": False}, [[]], [["a"]]),
    ("any", {}, [[], ["a"], ["x_1", "b"]], [["a b"], ["<"]]),
    ("odd names", {"properties": {"a>": {}, "b": {}}}, [["b"]], [["a>"]]),
]


@pytest.mark.parametrize("format", ["qwen3_xml", "glm", "deepseek_v32", "kimi_k3"])
@pytest.mark.parametrize(("schema", "fits", "others"), [r[1:] for r in SHAPES], ids=[r[0] for r in SHAPES])
def test_tagged_parameters_are_accepted_only_if_valid(
    format: str, schema: Any, fits: list[Any], others: list[Any]
) -> None:
    made = formats.get(format)
    constraint = made.constrain([v.Tool("f", "", json.dumps(schema))], ONE)
    assert constraint is not None

    def text(names: list[str]) -> str:
        call = v.ToolCall("", "f", json.dumps(dict.fromkeys(names, "x")))
        return made.section[0] + made.write_call(call) + made.section[1]

    for grammar in (to_structural_tag(constraint), to_gbnf(constraint).grammar, llguidance_grammar(constraint)):
        assert [names for names in fits if not accepts(grammar, text(names))] == []
        assert [names for names in others if accepts(grammar, text(names))] == []


@pytest.mark.parametrize("schema", ['{"properties": {"a": {"maximum": 1' + "0" * 5000 + "}}}", "[", '{"a":' * 9999])
def test_unreadable_schema_is_relaxed_to_any_object(schema: str) -> None:
    found = tools_grammar(formats.get("qwen3_xml"), [v.Tool("f", "", schema)], ONE)
    assert found is not None
    assert [*found.relaxed] == ["f"]
    assert accepts(found.text, formats.get("qwen3_xml").write_call(v.ToolCall("", "f", '{"a": "x"}')))
