"""The words of JSON Schema: which hold schemas, what their values must be, and how they are set right.

Source: https://json-schema.org/draft/2020-12/json-schema-validation and …/json-schema-core (2020-12).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

Schema: TypeAlias = dict[str, Any]
"""A schema that is an object; its numbers are `msgspec.Raw`, so that their digits stay."""

TYPES: Final = ("string", "number", "integer", "boolean", "null", "array", "object")
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Words that hold schemas under names."""
LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SINGLE: Final = frozenset(
    {"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
    | {"contains", "not", "if", "then", "else"}
)
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
"""What holds values of one type only."""
SILENT: Final = frozenset({"$schema", "$id", "$comment", "$anchor", "$vocabulary", "$defs", "definitions"})
"""Words that say nothing of a value by themselves."""

_COUNT = re.compile(rb"[0-9]+(\.0+)?")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _count(value: Any) -> bool:
    return isinstance(value, msgspec.Raw) and _COUNT.fullmatch(bytes(value)) is not None


def _types(value: Any) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(each, str) and each in TYPES for each in listed)


def _filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_WELL_FORMED: Final[dict[str, Callable[[Any], bool]]] = {
    "type": _types,
    "enum": _filled,
    "required": _texts,
    "uniqueItems": _is(bool),
    "dependentRequired": lambda value: isinstance(value, dict) and all(map(_texts, value.values())),
    **dict.fromkeys(NAMED, _is(dict)),
    **dict.fromkeys(LISTED, _filled),
    **dict.fromkeys(SINGLE, _is(dict, bool)),
    **dict.fromkeys(("title", "description", "$ref", "$schema", "$id", "$comment", "pattern", "format"), _is(str)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is(msgspec.Raw)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
}


def malformed(schema: Schema) -> list[str]:
    """The words whose value cannot be what it is, such as PHP's `"properties": []` or `"required": true`."""
    return [word for word, value in schema.items() if word in _WELL_FORMED and not _WELL_FORMED[word](value)]


def tuples(schema: Schema) -> Schema:
    """`items` of several schemas, as drafts up to 7 have it, as `prefixItems`; the same schema where there are none."""
    listed = schema.get("items")
    if not isinstance(listed, list) or not listed or "prefixItems" in schema:
        return schema
    rest = schema.get("additionalItems")
    made = {word: value for word, value in schema.items() if word not in ("items", "additionalItems")}
    return {**made, "prefixItems": listed, **({"items": rest} if isinstance(rest, dict | bool) else {})}


def types_in(schema: Schema) -> list[str]:
    """The types that are stated; none where any type will do."""
    stated = schema.get("type", [])
    return list(dict.fromkeys(stated)) if isinstance(stated, list) else [stated]


def kind(value: Any) -> str:
    """The JSON type of a value; integers are numbers."""
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


def referred(reference: str, root: Any) -> Any:
    """What a reference within the schema points to, by its path; None where that is nothing, or elsewhere."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = root
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(key)] if re.fullmatch("[0-9]{1,6}", key) and int(key) < len(found) else None
        else:
            found = found.get(key) if isinstance(found, dict) else None
    return found


def refers(value: Any) -> bool:
    """Whether there is a reference anywhere in it."""
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
