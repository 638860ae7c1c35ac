"""The keywords of JSON Schema: which contain schemas, what their values must be, and how variants are normalised.

Source: https://json-schema.org/draft/2020-12/json-schema-validation and …/json-schema-core (2020-12).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any]
"""A schema that is an object. Its numbers are `msgspec.Raw`, so that their digits are preserved."""

TYPES: Final = ("string", "number", "integer", "boolean", "null", "array", "object")
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords that contain schemas by name."""
LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
"""Keywords that contain a list of schemas."""
SINGLE: Final = frozenset(
    {"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
    | {"contains", "not", "if", "then", "else"}
)
"""Keywords that contain one schema."""
OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset(
        {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"}
        | {"unevaluatedItems"}
    ),
    "object": frozenset(
        {"properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"}
        | {"propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"}
    ),
}
"""Keywords that apply to values of one type only."""
NON_VALIDATING: Final = frozenset({"$schema", "$id", "$comment", "$anchor", "$vocabulary", "$defs", "definitions"})
"""Keywords that do not restrict a value by themselves."""

_COUNT = re.compile(rb"[0-9]+(\.0+)?")


def _is_string_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _is_count(value: Any) -> bool:
    return isinstance(value, msgspec.Raw) and _COUNT.fullmatch(bytes(value)) is not None


def _is_type(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(each, str) and each in TYPES for each in listed)


def _is_nonempty_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_WELL_FORMED: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _is_type,
    "enum": _is_nonempty_list,
    "required": _is_string_list,
    "uniqueItems": _is(bool),
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_is_string_list, value.values())),
    **dict.fromkeys(NAMED, _is(dict)),
    **dict.fromkeys(LISTED, _is_nonempty_list),
    **dict.fromkeys(SINGLE, _is(dict, bool)),
    **dict.fromkeys(("title", "description", "$ref", "$schema", "$id", "$comment", "pattern", "format"), _is(str)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is(msgspec.Raw)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
}


def malformed_keywords(schema: Schema) -> list[str]:
    """Returns the keywords with invalid values, such as PHP's `"properties": []` or `"required": true`."""
    return [word for word, value in schema.items() if word in _WELL_FORMED and not _WELL_FORMED[word](value)]


def with_prefix_items(schema: Schema) -> Schema:
    """Replaces `items` with several schemas (drafts up to 7) by `prefixItems`; else returns the same object."""
    listed = schema.get("items")
    if not isinstance(listed, list) or not listed or "prefixItems" in schema:
        return schema
    rest = schema.get("additionalItems")
    rest_schema = {word: value for word, value in schema.items() if word not in ("items", "additionalItems")}
    return {**rest_schema, "prefixItems": listed, **({"items": rest} if isinstance(rest, dict | bool) else {})}


def types_in(schema: Schema) -> list[str]:
    """Returns the values of `type`; empty if the schema does not restrict the type."""
    stated = schema.get("type", [])
    return list(dict.fromkeys(stated)) if isinstance(stated, list) else [stated]


def json_type(value: Any) -> str:
    """Returns the JSON type of a value; integers and `msgspec.Raw` are numbers."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
    return "object" if isinstance(value, dict) else "number"


def resolve_ref(reference: str, root: Any) -> Any:
    """Returns the target of a `$ref` that is a JSON Pointer into `root`; None if it does not resolve.

    Anchors (`#name`) and other documents do not resolve.
    """
    if reference != "#" and not reference.startswith("#/"):
        return None
    target = root
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(key)] if re.fullmatch("[0-9]{1,6}", key) and int(key) < len(target) else None
        else:
            target = target.get(key) if isinstance(target, dict) else None
    return target


def has_refs(value: Any) -> bool:
    """Returns whether the value contains a `$ref` at any depth."""
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if "$ref" in part:
                return True
            left += part.values()
        elif isinstance(part, list):
            left += part
    return False
