"""Converts raw argument values, which a model writes between tags, to JSON of the type in the tool's schema.

    <parameter=zip>02139</parameter>      "02139" if the schema requires a string; the text is not inspected
    <parameter=n>1e-05</parameter>        1e-05, with the digits as written
    <parameter=on>True</parameter>        true: some models write Python literals

A string is streamed. An object or array is streamed if the schema excludes a string. Other values are short and are
converted when complete. Numbers are never converted to float.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final

from dragoman.core.messages import JsonText as Json
from dragoman.schema.keywords import json_type, resolve_ref
from dragoman.schema.type_names import with_json_types
from dragoman.text.json_stream import JsonStream

ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERALS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_KIND_OF: Final = {"true": "boolean", "false": "boolean", "null": "null"}
_HALF = re.compile("[\ud800-\udfff]")
DEPTH_LIMIT: Final = 32
"""Maximum depth to which `$ref` and combined schemas are followed. Beyond that, a value may be anything."""


class Schema:
    """The parameters of one tool, as its schema describes them."""

    def __init__(self, parameters: Json) -> None:
        try:
            loaded = json.loads(parameters)
        except (ValueError, RecursionError):
            loaded = None
        self.root: Mapping[str, Any] = with_json_types(loaded) if isinstance(loaded, dict) else {}
        """The schema with JSON Schema's type names; `{}` if the text is not a schema."""
        self.readable = isinstance(loaded, dict | bool)
        """The text is a JSON Schema."""

    def types_at(self, *path: str | None) -> frozenset[str]:
        """Returns the JSON types that the parameter may have; all types if the schema does not restrict it.

        Args:
            path: Property names from the root; None stands for the items of an array.
        """
        return allowed_types(self._at(path), self.root)

    def constants(self, *path: str | None) -> tuple[Any, ...]:
        """Returns the values that the schema lists for the parameter (`enum`, `const`); `path` as in `types_at`."""
        return tuple(_constants(self._at(path), self.root, 0, set()))

    def _at(self, path: tuple[str | None, ...]) -> Any:
        schema: Any = self.root
        for key in path:
            schema = sub_schema(schema, key, self.root)
        return schema

    def names(self, *path: str | None) -> frozenset[str]:
        """Returns the names in `properties` of the parameter, or of the tool if no path; `path` as in `types_at`."""
        schema = self._at(path)
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        return frozenset(properties) if isinstance(properties, dict) else frozenset()


def sub_schema(schema: Any, key: str | None, root: Mapping[str, Any]) -> Any:
    """Returns the schema of a property, or of an item (key None), also from references and combined schemas.

    Branches of `anyOf` and `oneOf` are combined by `anyOf`, without those that do not describe it. None if none does.

    Args:
        schema: The schema of an object or array.
        key: The name of the property; None stands for the items.
        root: The schema that its references point into.
    """
    return _sub_schema(schema, key, root, 0, set())


def _sub_schema(schema: Any, key: str | None, root: Mapping[str, Any], depth: int, tried: set[str]) -> Any:
    """`tried`: references that were followed already, because schemas may be recursive in several ways."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return None
    members = schema.get("properties")
    if key is not None and isinstance(members, dict) and key in members:
        return members[key]
    schema_inside = schema.get("items" if key is None else "additionalProperties")
    if isinstance(schema_inside, dict):
        return schema_inside

    def union_parts(branches: list[Any]) -> list[Any]:
        deeper = (_sub_schema(branch, key, root, depth + 1, tried) for branch in branches)
        return [each for each in deeper if each is not None]

    parts: list[Any] = []
    if isinstance(reference := schema.get("$ref"), str) and reference not in tried:
        tried.add(reference)
        parts += union_parts([resolve_ref(reference, root)])
    for word in ("allOf", "anyOf", "oneOf"):
        stated = union_parts(schema[word]) if isinstance(schema.get(word), list) else []
        parts += [{"anyOf": stated}] if word != "allOf" and len(stated) > 1 else stated
    return {"allOf": parts} if len(parts) > 1 else next(iter(parts), None)


def allowed_types(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Returns the JSON types that a value of this schema may have."""
    return _types(schema, root, 0, {})


def _types(schema: Any, root: Mapping[str, Any], depth: int, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """`known`: the types of references that were followed already; all types for a recursive one."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return ALL
    types = _stated(schema)
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = ALL
            known[reference] = _types(resolve_ref(reference, root), root, depth + 1, known)
        types &= known[reference]
    for branch in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        types &= _types(branch, root, depth + 1, known)
    for word in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(word), list) and branches:
            types &= frozenset().union(*(_types(b, root, depth + 1, known) for b in branches))
    return types or ALL


def _stated(schema: Mapping[str, Any]) -> frozenset[str]:
    """Returns the types by `type`, `enum` or `const`, or by the keywords of objects and arrays."""
    stated = schema.get("type")
    if stated:
        listed = stated if isinstance(stated, list) else [stated]
        types = frozenset(t for t in listed if isinstance(t, str)) & ALL or ALL
        return types | {"null"} if schema.get("nullable") is True else types
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    if values:
        return frozenset(json_type(value) for value in values)
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else ALL


def _constants(schema: Any, root: Mapping[str, Any], depth: int, tried: set[str]) -> list[Any]:
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return []
    values = [schema["const"]] if "const" in schema else []
    values += schema["enum"] if isinstance(schema.get("enum"), list) else []
    branches: list[Any] = []
    if isinstance(reference := schema.get("$ref"), str) and reference not in tried:
        tried.add(reference)
        branches.append(resolve_ref(reference, root))
    for word in ("allOf", "anyOf", "oneOf"):
        branches += schema[word] if isinstance(schema.get(word), list) else []
    return values + [value for each in branches for value in _constants(each, root, depth + 1, tried)]


def self_contained(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sub-schema with the targets of its references in its own `$defs`."""
    definitions: dict[str, Any] = {}
    body = move_refs_to_defs(schema, root, definitions, "")
    return {**body, "$defs": definitions} if definitions else body


def move_refs_to_defs(schema: Any, root: Mapping[str, Any], definitions: dict[str, Any], prefix: str) -> Any:
    """Returns the schema, with the targets of its references moved to `definitions`.

    Args:
        schema: A schema.
        root: The schema that its references point into.
        definitions: Gets each target by its new name, as for `$defs`.
        prefix: The start of the new names, so that several schemas can share `definitions`.
    """
    names: dict[str, str] = {}
    left: list[tuple[str, Any]] = []

    def moved(part: Any) -> Any:
        if isinstance(part, list):
            return [moved(each) for each in part]
        if not isinstance(part, dict):
            return part
        sub_schema = {key: moved(each) for key, each in part.items()}
        reference = part.get("$ref")
        if isinstance(reference, str) and (target := resolve_ref(reference, root)) is not None:
            if reference not in names:
                names[reference] = f"{prefix}d{len(names)}"
                left.append((names[reference], target))
            sub_schema["$ref"] = f"#/$defs/{names[reference]}"
        return sub_schema

    result = moved(schema)
    while left:
        name, target = left.pop()
        definitions[name] = moved(target)
    return result


def as_json(text: str, types: frozenset[str] = ALL, constants: Collection[Any] = ()) -> Json:
    """Returns a complete raw value as JSON of one of the types; as a string if it matches none of them.

    Args:
        text: The value as the model wrote it.
        types: The allowed JSON types.
        constants: The allowed values; a text that equals only a string among them becomes that string.
    """
    word = text.strip()
    if word in constants and word not in [json.dumps(each) for each in constants if not isinstance(each, str)]:
        return as_string(word)
    literal = _LITERALS.get(word)
    if literal and _KIND_OF[literal] in types and (word == literal or "string" not in types):
        return literal
    if types & {"number", "integer"} and _NUMBER.fullmatch(word):
        return word
    json_type = {"{": "object", "[": "array", '"': "string"}.get(word[:1])
    if json_type in types and (json_type != "string" or types == ALL):
        return parse_complete(word) or as_string(text)
    return as_string(text)


def parse_complete(text: str) -> Json:
    """Returns the text if it is exactly one JSON value; else ""."""
    value = JsonStream()
    return value.drain() if text and value.feed(text, 0, True) == len(text) and value.done else ""


def string_writer(emit: Callable[[str], None]) -> Callable[[str], None]:
    """Returns a function that escapes raw text for a JSON string, without its quotes, and emits it."""
    return partial(emit_escaped, emit)


def emit_escaped(emit: Callable[[str], None], text: str) -> None:
    """Escapes the text for a JSON string, without its quotes, and emits it."""
    emit(escape_for_string(text))


def escape_for_string(text: str) -> Json:
    """Returns the text escaped for a JSON string, without its quotes."""
    return (encode_basestring(text) if text.isascii() else as_string(text))[1:-1]


def as_string(text: str) -> Json:
    """Returns the text as a JSON string. Half of a surrogate pair, which UTF-8 cannot encode, becomes `\\ufffd`."""
    encoded = encode_basestring(text)
    return encoded if encoded.isascii() else _HALF.sub(r"\\ufffd", encoded)
