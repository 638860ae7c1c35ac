"""Keywords of JSON Schema: the types of values, and the targets of references."""

import json
from typing import Any

import msgspec
import pytest

from dragoman.schema import argument_types, keywords

ROOT: dict[str, Any] = {
    "$defs": {"a": {"type": "integer"}, "x/y~z": {"type": "null"}, "named": {"$anchor": "name", "type": "integer"}},
    "prefixItems": [{"type": "string"}, {"type": "boolean"}],
}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "boolean"),
        (1, "number"),
        (1.5, "number"),
        (msgspec.Raw(b"1.50"), "number"),
        ("1", "string"),
        ([], "array"),
        ({}, "object"),
    ],
)
def test_json_type_of_value(value: Any, name: str) -> None:
    assert keywords.json_type(value) == name


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a", {"type": "integer"}),
        ("#/$defs/x~1y~0z", {"type": "null"}),
        ("#/prefixItems/1", {"type": "boolean"}),
    ],
)
def test_pointer_within_schema_is_resolved(reference: str, target: Any) -> None:
    assert keywords.resolve_ref(reference, ROOT) == target


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "#name",
        "#name/$defs/a",
        "#/$defs/b",
        "#/prefixItems/2",
        "#/prefixItems/-1",
        "#/prefixItems/x",
        "a.json#/$defs/a",
    ],
)
def test_other_reference_is_not_resolved(reference: str) -> None:
    assert keywords.resolve_ref(reference, ROOT) is None


def test_argument_with_anchor_reference_may_have_any_type() -> None:
    schema = argument_types.Schema(json.dumps({**ROOT, "type": "object", "properties": {"n": {"$ref": "#name"}}}))
    assert schema.types_at("n") == argument_types.ALL


def test_argument_has_type_of_referenced_array_item() -> None:
    schema = argument_types.Schema(json.dumps({**ROOT, "properties": {"n": {"$ref": "#/prefixItems/0"}}}))
    assert schema.types_at("n") == {"string"}
