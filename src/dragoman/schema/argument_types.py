"""Values that a model writes raw, between tags, as JSON of the type that the tool's schema wants.

    <parameter=zip>02139</parameter>      "02139" where the schema says string, never looked into
    <parameter=n>1e-05</parameter>        1e-05, the digits as they were written
    <parameter=on>True</parameter>        true: some models write Python's literals

A string streams as it comes; an object or array streams where the schema says that it is no string; the rest is
short and waits for its end. Nothing passes through a float.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final

from dragoman.core.messages import JsonText as Json
from dragoman.schema.type_names import with_json_types
from dragoman.text.json_stream import JsonStream

ALL: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LITERALS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_KIND_OF: Final = {"true": "boolean", "false": "boolean", "null": "null"}
_HALF = re.compile("[\ud800-\udfff]")
DEPTH_LIMIT: Final = 32
"""How deep `$ref` and combinations are followed; beyond, a value may be anything."""


class Schema:
    """What the parameters of one tool may be."""

    def __init__(self, parameters: Json) -> None:
        try:
            loaded = json.loads(parameters)
        except (ValueError, RecursionError):
            loaded = None
        self.root: Mapping[str, Any] = with_json_types(loaded) if isinstance(loaded, dict) else {}
        """As it was stated, with JSON Schema's names of types; of anything where it is none."""
        self.readable = isinstance(loaded, dict | bool)
        """It is a schema."""

    def of(self, *path: str | None) -> frozenset[str]:
        """The JSON types that the parameter may have; all of them where nothing is known of it.

        In the path, None stands for the items of an array.
        """
        return types_of(self._at(path), self.root)

    def constants(self, *path: str | None) -> tuple[Any, ...]:
        """The values that the parameter is limited to, as far as the schema lists them; path as of `of`."""
        return tuple(_constants(self._at(path), self.root, 0, set()))

    def _at(self, path: tuple[str | None, ...]) -> Any:
        schema: Any = self.root
        for key in path:
            schema = inside(schema, key, self.root)
        return schema

    def names(self) -> frozenset[str]:
        """The parameters that are known."""
        properties = self.root.get("properties")
        return frozenset(properties) if isinstance(properties, dict) else frozenset()


def inside(schema: Any, key: str | None, root: Mapping[str, Any]) -> Any:
    """The schema of a member, or of an item, wherever the schema says it; None where it does not.

    What the branches of a choice say of it is a choice too, of those that say anything.
    """
    return _inside(schema, key, root, 0, set())


def _inside(schema: Any, key: str | None, root: Mapping[str, Any], depth: int, tried: set[str]) -> Any:
    """`tried` are the references that have been followed: schemas may refer to themselves, several times over."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return None
    members = schema.get("properties")
    if key is not None and isinstance(members, dict) and key in members:
        return members[key]
    found = schema.get("items" if key is None else "additionalProperties")
    if isinstance(found, dict):
        return found

    def within(branches: list[Any]) -> list[Any]:
        deeper = (_inside(branch, key, root, depth + 1, tried) for branch in branches)
        return [each for each in deeper if each is not None]

    parts: list[Any] = []
    if isinstance(reference := schema.get("$ref"), str) and reference not in tried:
        tried.add(reference)
        parts += within([referred(reference, root)])
    for word in ("allOf", "anyOf", "oneOf"):
        stated = within(schema[word]) if isinstance(schema.get(word), list) else []
        parts += [{"anyOf": stated}] if word != "allOf" and len(stated) > 1 else stated
    return {"allOf": parts} if len(parts) > 1 else next(iter(parts), None)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a value of this schema may have."""
    return _types(schema, root, 0, {})


def _types(schema: Any, root: Mapping[str, Any], depth: int, known: dict[str, frozenset[str]]) -> frozenset[str]:
    """`known` are those of the references that have been followed; of one that leads back to itself, all."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return ALL
    found = _stated(schema)
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = ALL
            known[reference] = _types(referred(reference, root), root, depth + 1, known)
        found &= known[reference]
    for branch in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        found &= _types(branch, root, depth + 1, known)
    for word in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(word), list) and branches:
            found &= frozenset().union(*(_types(b, root, depth + 1, known) for b in branches))
    return found or ALL


def _stated(schema: Mapping[str, Any]) -> frozenset[str]:
    """By `type`, `enum`, `const`, or the words that only one type has."""
    stated = schema.get("type")
    if stated:
        listed = stated if isinstance(stated, list) else [stated]
        found = frozenset(t for t in listed if isinstance(t, str)) & ALL or ALL
        return found | {"null"} if schema.get("nullable") is True else found
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    if values:
        return frozenset(json_kind(value) for value in values)
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else ALL


def _constants(schema: Any, root: Mapping[str, Any], depth: int, tried: set[str]) -> list[Any]:
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return []
    found = [schema["const"]] if "const" in schema else []
    found += schema["enum"] if isinstance(schema.get("enum"), list) else []
    branches: list[Any] = []
    if isinstance(reference := schema.get("$ref"), str) and reference not in tried:
        tried.add(reference)
        branches.append(referred(reference, root))
    for word in ("allOf", "anyOf", "oneOf"):
        branches += schema[word] if isinstance(schema.get(word), list) else []
    return found + [value for each in branches for value in _constants(each, root, depth + 1, tried)]


def json_kind(value: Any) -> str:
    """The JSON type of a value; integers are numbers."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case _:
            return "array" if isinstance(value, list) else "object"


def referred(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference within the schema points to; None for any other."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found


def closed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """The schema by itself: what it refers to within the root stands in its own `$defs`."""
    definitions: dict[str, Any] = {}
    made = detached(schema, root, definitions, "")
    return {**made, "$defs": definitions} if definitions else made


def detached(schema: Any, root: Mapping[str, Any], definitions: dict[str, Any], prefix: str) -> Any:
    """The schema with what it refers to put into `definitions`, under names that begin with the prefix."""
    names: dict[str, str] = {}
    left: list[tuple[str, Any]] = []

    def moved(part: Any) -> Any:
        if isinstance(part, list):
            return [moved(each) for each in part]
        if not isinstance(part, dict):
            return part
        inside = {key: moved(each) for key, each in part.items()}
        reference = part.get("$ref")
        if isinstance(reference, str) and (target := referred(reference, root)) is not None:
            if reference not in names:
                names[reference] = f"{prefix}d{len(names)}"
                left.append((names[reference], target))
            inside["$ref"] = f"#/$defs/{names[reference]}"
        return inside

    made = moved(schema)
    while left:
        name, target = left.pop()
        definitions[name] = moved(target)
    return made


def as_json(text: str, types: frozenset[str] = ALL, constants: Collection[Any] = ()) -> Json:
    """A raw value that has come whole, as JSON of one of the types; a string where it fits none of them.

    Of `constants`, a text that is one of the strings and none of the others is that string.
    """
    word = text.strip()
    if word in constants and word not in [json.dumps(each) for each in constants if not isinstance(each, str)]:
        return as_string(word)
    literal = _LITERALS.get(word)
    if literal and _KIND_OF[literal] in types and (word == literal or "string" not in types):
        return literal
    if types & {"number", "integer"} and _NUMBER.fullmatch(word):
        return word
    wanted = {"{": "object", "[": "array", '"': "string"}.get(word[:1])
    if wanted in types and (wanted != "string" or types == ALL):
        return whole_json(word) or as_string(text)
    return as_string(text)


def whole_json(text: str) -> Json:
    """The text as JSON if it is one value and nothing else; else ""."""
    value = JsonStream()
    return value.drain() if text and value.feed(text, 0, True) == len(text) and value.done else ""


def string_writer(emit: Callable[[str], None]) -> Callable[[str], None]:
    """Takes raw text, passes on the inside of a JSON string."""
    return partial(pass_on_quoted, emit)


def pass_on_quoted(emit: Callable[[str], None], text: str) -> None:
    """Pass on the inside of a JSON string."""
    emit(quoted(text))


def quoted(text: str) -> Json:
    """The inside of a JSON string."""
    return (encode_basestring(text) if text.isascii() else as_string(text))[1:-1]


def as_string(text: str) -> Json:
    """The text as a JSON string; half of a surrogate pair, which UTF-8 cannot carry, becomes `\\ufffd`."""
    shown = encode_basestring(text)
    return shown if shown.isascii() else _HALF.sub(r"\\ufffd", shown)
