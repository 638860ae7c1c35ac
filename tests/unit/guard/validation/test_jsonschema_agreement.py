"""Validity is the same as by `jsonschema`, which shares no code with the engine."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from dragoman.guard.arguments import Arguments
from dragoman.guard.validation.compiled_schema import compile_schema

NAMES = st.sampled_from(["a", "b", "c", "long name"])
TEXTS = st.sampled_from(["", "a", "B", "ab", "abc", "é😀", "2026-01-31", "2026-02-30", "::1", "127.0.0.1", "12"])
NUMBERS = st.sampled_from([0, -1, 1, 2, 3, 1.0, 1.5, -0.5, 2**53, 2**64, 10**30, 1e300])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
COUNTS = st.integers(0, 3)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named, listed = st.dictionaries(NAMES, inner, max_size=3), st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "properties": named,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "[ ]"]), inner, max_size=2),
            "propertyNames": inner,
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
            "dependentSchemas": named,
            "minProperties": COUNTS,
            "maxProperties": COUNTS,
            "items": inner,
            "prefixItems": listed,
            "contains": inner,
            "minItems": COUNTS,
            "maxItems": COUNTS,
            "uniqueItems": st.booleans(),
            "minimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": st.sampled_from([1, 2, 3]),
            "minLength": COUNTS,
            "maxLength": COUNTS,
            "pattern": st.sampled_from(["^a", "b$", "[0-9]", "^(?!a)."]),
            "format": st.sampled_from(["date", "ipv4", "ipv6", "nothing-known"]),
            "anyOf": listed,
            "oneOf": listed,
            "allOf": listed,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b", "#named"]),
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.just({}) | _schemas(st.booleans()), _schemas, max_leaves=8)
LEAF_SCHEMAS = st.fixed_dictionaries({}, optional={"type": TYPES, "const": VALUES, "minimum": NUMBERS})


@st.composite
def schemas_with_definitions(draw: st.DrawFn) -> Any:
    """Returns a schema with definitions; one of them refers to itself through a member."""
    schema = draw(SCHEMAS)
    root = schema if isinstance(schema, dict) else {"allOf": [schema]}
    defined = {"a": draw(LEAF_SCHEMAS), "b": {"properties": {"a": {"$ref": "#/$defs/b"}}, **draw(LEAF_SCHEMAS)}}
    return {**root, "$defs": {**defined, "c": {"$anchor": "named", **draw(LEAF_SCHEMAS)}}}


@given(schemas_with_definitions(), VALUES)
@example({"type": "integer"}, 1.0)
@example({"enum": [1]}, True)
@example({"uniqueItems": True}, [1, True, 1.0])
@example({"type": "string", "pattern": "^(?!a).", "$ref": "#/$defs/a", "$defs": {"a": {}}}, None)
def test_validity_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    made = compile_schema(json.dumps(schema))
    assert made.can_check, made.reason
    judge = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    fits = judge.is_valid(value)
    assert Arguments(json.dumps(value)).valid(made) is fits
    assert (made.violations(value) == ()) is fits
    assert all(len(problem.message) < 2000 for problem in made.violations(value))


DRAFT_7_SCHEMAS = st.fixed_dictionaries(
    {"$schema": st.just("http://json-schema.org/draft-07/schema#")},
    optional={
        "items": st.lists(LEAF_SCHEMAS, min_size=1, max_size=3),
        "additionalItems": st.booleans() | LEAF_SCHEMAS,
        "dependencies": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True) | LEAF_SCHEMAS, max_size=2),
        "definitions": st.just({"a": {"type": "integer"}}),
        "properties": st.dictionaries(
            NAMES, LEAF_SCHEMAS | st.just({"$ref": "#/definitions/a", "type": "string"}), max_size=2
        ),
    },
).map(lambda schema: {**schema, "definitions": {"a": {"type": "integer"}}})


@given(DRAFT_7_SCHEMAS, VALUES)
def test_validity_agrees_with_jsonschema_for_draft_7(schema: Any, value: Any) -> None:
    fits = Draft7Validator(schema).is_valid(value)
    assert Arguments(json.dumps(value)).valid(compile_schema(json.dumps(schema))) is fits
