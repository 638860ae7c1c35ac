"""Type names outside JSON Schema: their meaning, and that readers, validation and adapted schemas agree on it."""

import json
from typing import Any

import pytest

from dragoman import formats
from dragoman.api.parse import parse
from dragoman.core import messages as v
from dragoman.guard.arguments import Arguments
from dragoman.guard.validation.compiled_schema import compile_schema
from dragoman.schema import targets
from dragoman.schema.adapt import adapt
from dragoman.schema.type_names import with_json_types

JSON_TYPES: list[tuple[Any, Any]] = [
    ("float", {"type": "number"}),
    ("Integer", {"type": "integer"}),
    ("STRING", {"type": "string"}),
    ("bool", {"type": "boolean"}),
    ("dict", {"type": "object"}),
    ("Dict[str, int]", {"type": "object"}),
    ("tuple", {"type": "array"}),
    ("List[str]", {"type": "array", "items": {"type": "string"}}),
    ("int[][]", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
    ("array of numbers", {"type": "array", "items": {"type": "number"}}),
    ("number|null", {"type": ["number", "null"]}),
    ("str or None", {"type": ["string", "null"]}),
    ("Union[int, List[str]]", {"type": ["integer", "array"], "items": {"type": "string"}}),
    ("Optional[float]", {"type": ["number", "null"]}),
    ("<class 'int'>", {"type": "integer"}),
    ("varchar(20)", {"type": "string"}),
    (["float", "null"], {"type": ["number", "null"]}),
    ("any", {}),
    (["string", "any"], {}),
]
UNKNOWN = [
    "objekt",
    "Customer",
    "list[Customer]",
    "int | Customer",
    "",
    "list[" * 40,
    ["string", "Customer"],
    3,
    None,
    {},
]


@pytest.mark.parametrize(("name", "meant"), JSON_TYPES, ids=str)
def test_type_name_is_converted_to_json_schema(name: Any, meant: dict[str, Any]) -> None:
    assert with_json_types({"type": name, "description": "d"}) == {**meant, "description": "d"}


@pytest.mark.parametrize("name", UNKNOWN, ids=str)
def test_unknown_type_name_is_kept(name: Any) -> None:
    assert with_json_types({"type": name}) == {"type": name}


def test_type_names_outside_schemas_are_kept() -> None:
    same = {
        "type": "object",
        "properties": {"type": {"type": "string", "enum": [{"type": "int"}], "default": {"type": "int"}}},
        "examples": [{"type": "int"}],
    }
    assert with_json_types(same) is same
    deep = {
        "anyOf": [{"properties": {"a": {"type": "array", "items": {"type": "int"}}}}],
        "$defs": {"n": {"type": "str"}},
    }
    assert json.dumps(with_json_types(deep)) == json.dumps(deep).replace('"int"', '"integer"').replace(
        '"str"', '"string"'
    )
    assert with_json_types({"type": "list[str]", "items": {"type": "int"}}) == {
        "type": "array",
        "items": {"type": "integer"},
    }


SAMPLE_VALUES = {
    "float": "3.5",
    "int": "3",
    "Boolean": "true",
    "dict": '{"a": 1}',
    "List[int]": "[1]",
    "int|null": "null",
}
TAGGED = [name for name in formats.names() if formats.get(name).arguments == "tagged"]


@pytest.mark.parametrize("format", TAGGED)
def test_tagged_formats_read_values_of_named_types(format: str) -> None:
    """They are read like values of the JSON type, also in formats that write types in the text."""
    made = formats.get(format)
    for name, value in SAMPLE_VALUES.items():
        text = made.write_calls([v.ToolCall("", "f", f'{{"a": {value}}}')])
        tool = v.Tool("f", "", json.dumps({"type": "object", "properties": {"a": {"type": name}}}))
        (call,) = [part for part in parse(text, format, [tool]).parts if isinstance(part, v.ToolCall)]
        assert json.loads(call.arguments) == {"a": json.loads(value)}, name


@pytest.mark.parametrize(("name", "value"), SAMPLE_VALUES.items())
def test_named_types_are_validated_and_sent_as_json_types(name: str, value: str) -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"type": name}}})
    assert Arguments(f'{{"a": {value}}}').valid(compile_schema(schema))
    assert Arguments('{"a": "x"}').valid(compile_schema(schema)) is False
    assert f'"{name}"' not in adapt(schema, targets.OPENAI).json
