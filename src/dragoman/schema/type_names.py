"""Replaces type names that JSON Schema does not define, such as `float`, `dict` or `number|null`.

    {"type": "float"}            {"type": "number"}
    {"type": "List[str]"}        {"type": "array", "items": {"type": "string"}}
    {"type": "int | None"}       {"type": ["integer", "null"]}
    {"type": "any"}              {}

Tool lists that are written by hand, or generated from the signatures of a programming language, contain such names.
Only unambiguous names are replaced. Names of properties, constants and examples are never changed.

Source: JSON Schema 2020-12, 6.1.1, for the seven names; the type names of Python, JavaScript, Java, Rust and SQL, and
those of the Berkeley Function Calling Leaderboard's tools (gorilla, 2024).
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from dragoman.schema.keywords import LISTED, NAMED, SINGLE, TYPES

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "string": (
        "str",
        "text",
        "char",
        "character",
        "varchar",
        "unicode",
        "date",
        "datetime",
        "date-time",
        "uuid",
        "uri",
    ),
    "number": ("float", "double", "decimal", "real", "numeric", "num", "float16", "float32", "float64", "f32", "f64"),
    "integer": (
        *("int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32", "uint64", "i32", "i64", "u32"),
        *("u64", "long", "short", "bigint", "bigdecimal", "biginteger", "smallint", "tinyint"),
    ),
    "boolean": ("bool", "flag"),
    "null": ("none", "nil", "nonetype", "undefined"),
    "array": ("list", "tuple", "set", "frozenset", "sequence", "iterable", "vector", "vec", "arraylist"),
    "object": ("dict", "dictionary", "map", "mapping", "hashmap", "hashtable", "record", "struct", "json object"),
}
_TYPE_OF: Final = {name: kind for kind, names in _NAMES.items() for name in (kind, *names)} | {"bigdecimal": "number"}
_ANY: Final = frozenset({"any", "mixed", "unknown", "anything"})
_LIMIT_CHARS: Final = 100
_CLASS: Final = re.compile(r"<class '([\w.]+)'>")
_GENERIC: Final = re.compile(r"([a-z]+)\s*(?:\[(.*)\]|<(.*)>|\((.*)\))", re.DOTALL)
_GENERIC_OF: Final = re.compile(r"(?:array|list|set|sequence)\s+of\s+(.+?)(?<=[^s])s?")
_SCHEMAS: Final = LISTED | SINGLE | {"additionalItems"}
"""Keywords that contain one schema or a list of schemas."""

_Meanings: TypeAlias = dict[str, str]
"""JSON types in order. The value is the name of the item type for an array, else ""."""


def with_json_types(schema: Any) -> Any:
    """Returns the schema with JSON Schema's type names; the same object if nothing changes.

    A schema that exceeds the recursion limit is returned unchanged.
    """
    try:
        return _with_json_types(schema)
    except RecursionError:
        return schema


def _with_json_types(schema: Any) -> Any:
    if isinstance(schema, list):
        parts = [_with_json_types(each) for each in schema]
        return parts if any(new is not old for new, old in zip(parts, schema, strict=True)) else schema
    if not isinstance(schema, dict):
        return schema
    changed: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _SCHEMAS:
            converted = _with_json_types(value)
        elif word in NAMED and isinstance(value, dict):
            converted = _of_members(value)
        else:
            continue
        if converted is not value:
            changed[word] = converted
    schema = {**schema, **changed} if changed else schema
    return _renamed(schema) if "type" in schema else schema


def _of_members(members: dict[str, Any]) -> dict[str, Any]:
    converted = {name: _with_json_types(each) for name, each in members.items()}
    return converted if any(converted[name] is not each for name, each in members.items()) else members


def _renamed(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema with a valid `type`, or without `type` if it means any value."""
    stated = schema["type"]
    listed = stated if isinstance(stated, list) else [stated]
    if all(each in TYPES for each in listed if isinstance(each, str)):
        return schema
    meanings: _Meanings = {}
    for each in listed:
        meaning = _meaning(each) if isinstance(each, str) else None
        if meaning is None:
            return schema
        meanings |= meaning
    rest = {word: value for word, value in schema.items() if word != "type"}
    if not meanings.keys() <= set(TYPES):
        return rest
    types = list(meanings)
    items = meanings.get("array", "")
    item_types = (
        {} if not items or rest.keys() & {"items", "prefixItems"} else {"items": _with_json_types({"type": items})}
    )
    # `type` keeps its position, so that a schema that is shown keeps its order.
    order = {word: types if len(types) > 1 else types[0] for word in schema if word == "type"}
    return {word: order.get(word, value) for word, value in schema.items()} | item_types


def _meaning(name: str) -> _Meanings | None:
    """Returns the JSON types that a name means, including "any" for any value; None if it is ambiguous."""
    word = " ".join(name.split()).lower()
    if len(name) > _LIMIT_CHARS:
        return None
    if match := _CLASS.fullmatch(word):
        word = match[1].rpartition(".")[2]
    word = word.removeprefix("typing.").removeprefix("builtins.")
    if word in _TYPE_OF:
        return {_TYPE_OF[word]: ""}
    if word in _ANY:
        return {"any": ""}
    parts = _split(word, "|") if "|" in word else word.split(" or ")
    if len(parts) > 1:
        return _union(parts)
    if word.endswith("?"):
        return _union([word[:-1], "null"])
    if word.endswith("[]"):
        return _array(word[:-2])
    if match := _GENERIC_OF.fullmatch(word):
        return _array(match[1])
    return _generic(word)


def _generic(word: str) -> _Meanings | None:
    """Returns the meaning of names such as `list[str]`, `dict<string, int>` and `optional[int]`."""
    match = _GENERIC.fullmatch(word)
    if not match:
        return None
    outer, inner = match[1], _split(match[2] or match[3] or match[4] or "", ",")
    if outer == "optional" and len(inner) == 1:
        return _union([*inner, "null"])
    if outer == "union":
        return _union(inner)
    kind = _TYPE_OF.get(outer, "")
    if kind == "array":
        return _array(inner[0]) if len(inner) == 1 and outer != "tuple" else {"array": ""}
    # `varchar(20)`, `decimal(10, 2)`
    return {kind: ""} if kind == "object" or (kind and match[4] is not None) else None


def _array(item: str) -> _Meanings | None:
    return {"array": item} if _meaning(item) is not None else None


def _union(names: list[str]) -> _Meanings | None:
    meanings: _Meanings = {}
    for name in names:
        meaning = _meaning(name.strip())
        if meaning is None:
            return None
        meanings |= meaning
    return meanings


def _split(text: str, separator: str) -> list[str]:
    """Splits a text at separators outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "[<(") - (char in "])>")
        if char == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]
