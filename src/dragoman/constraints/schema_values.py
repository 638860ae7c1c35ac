"""Which values a JSON Schema lets through, in a notation: JSON's own, Python's, or another of that kind.

    {"type": "object", "properties": {"n": {"type": "integer"}}}        {"n": 3}      {n:3}      {"n": 3}

Objects have the members that their schema states, in its order, and others only where it states none. What no grammar
can say of a schema is told in `relaxed`.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.constraints.constraint import UNREADABLE
from dragoman.constraints.grammar import All, Either, Json, Many, Piece, Rule, maybe
from dragoman.core.messages import Tool
from dragoman.schema.argument_types import DEPTH_LIMIT, Schema, referred

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
NUMBER_WORDS: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
STRING_WORDS: Final = frozenset({"format", "maxLength", "minLength", "pattern"})
_LEAF_WORDS: Final = {"string": STRING_WORDS, "number": NUMBER_WORDS, "integer": NUMBER_WORDS}
"""What a schema may say of a scalar; whoever writes that holds it, or tells."""
UNSAID: Final = frozenset(
    {
        *("allOf", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "format", "if"),
        *("maxContains", "maxProperties", "minContains", "minProperties", "not", "pattern", "patternProperties"),
        *("prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
        *NUMBER_WORDS,
    }
)
"""What pieces do not say, but for what scalars hold themselves."""
_Members: TypeAlias = tuple[dict[str, Any], list[str]]
"""What is stated of an object's members, by name, and which of them are required."""
REPEAT_LIMIT: Final = 1000
"""Longer strings and arrays are not counted; llama.cpp refuses a grammar that repeats 2,000 times."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a notation writes values; brackets are those of JSON."""

    known: Callable[[Any], str]
    """A value that the schema states, as text; "" where the notation cannot write it."""
    string: Callable[[Mapping[str, Any]], Piece]
    """Any string of a schema of `type` and `STRING_WORDS`."""
    key: Callable[[str], Piece]
    """A member's name, and what stands before its value; "" where the notation cannot write it."""
    any_key: Piece
    comma: Piece
    order: Callable[[str], str] = lambda _: ""
    """What members are sorted by; unless given, they stand as the schema has them."""
    counts: bool = True
    """Strings may be held to those words."""
    anything: Piece | None = None
    """Any value, where the notation of grammars has that."""


def _json_key(name: str) -> Piece:
    return All((json.dumps(name, ensure_ascii=False) + ":", maybe(" ")))


_STRING: Final = Json('{"type": "string"}')
JSON: Final = Spelling(
    known=lambda value: json.dumps(value, ensure_ascii=False),
    string=lambda schema: Json(json.dumps(schema)),
    key=_json_key,
    any_key=All((_STRING, ":", maybe(" "))),
    comma=All((",", maybe(" "))),
    anything=Json("{}"),
)


class Values:
    """Turns the parts of one schema into pieces."""

    def __init__(self, spelling: Spelling, root: Mapping[str, Any], relaxed: set[str]) -> None:
        self._spelling = spelling
        self._root = root
        self._relaxed = relaxed
        self._references: dict[str, Piece] = {}
        self._anything: Piece = spelling.anything or self._any()

    def of(self, schema: Any, depth: int = 0, through: tuple[str, ...] = ()) -> Piece:
        """What stands for a value of this schema; `through` are the references that lead here from no other value."""
        if not isinstance(schema, dict):
            return self._anything
        if depth > DEPTH_LIMIT:
            return self._relax("depth")
        if isinstance(schema.get("$ref"), str):
            self._relaxed |= schema.keys() & UNSAID
            return self._reference(schema["$ref"], depth, through)
        if known := self._known(schema):
            self._relaxed |= schema.keys() & UNSAID
            return Either(tuple(known))
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and branches:
            if "properties" not in schema:
                self._relaxed |= schema.keys() & UNSAID
                return Either(tuple(self.of(b, depth + 1, through) for b in branches))
            self._relaxed |= {"anyOf", "oneOf"} & schema.keys()
        return self._of_types(schema, depth)

    def members(
        self,
        properties: Mapping[str, Any],
        needed: Collection[str],
        others: Any,
        depth: int = 0,
        written: Spelling | None = None,
    ) -> Piece:
        """What stands between the brackets of an object; `others` is the schema of members that are not stated.

        `written` says how the names of these are.
        """
        written = written or self._spelling
        comma = written.comma
        if not properties:
            if others is False:
                return ""
            member = All((written.any_key, self.of(others, depth + 1)))
            return maybe(All((member, Many(All((comma, member))))))
        keys = {name: written.key(name) for name in sorted(properties, key=written.order)}
        stated = [(All((key, self.of(properties[name], depth + 1))), name) for name, key in keys.items() if key]
        if len(stated) < len(properties):
            self._relax("properties")
            needed = [name for name in needed if keys[name]]
        firsts: list[Piece] = []
        rest: Piece = ""
        for member, name in reversed(stated):
            optional = name not in needed
            if not optional:
                firsts = []
            firsts.insert(0, All((member, rest)))
            again = All((comma, member))
            # A rule, as it stands in what comes before as well: so that many members make no large grammar.
            rest = Rule(All((maybe(again) if optional else again, rest)))
        return Either(tuple(firsts)) if needed else maybe(Either(tuple(firsts)))

    def _known(self, schema: Mapping[str, Any]) -> list[str]:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not isinstance(values, list) or not values:
            return []
        written = [text for text in map(self._spelling.known, values) if text]
        self._relaxed |= set() if written else {"enum"}
        return written

    def _of_types(self, schema: Mapping[str, Any], depth: int) -> Piece:
        stated = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else [])
        types = [t for t in (stated if isinstance(stated, list) else [stated]) if t in TYPES]
        self._relaxed |= schema.keys() & UNSAID - frozenset().union(*(_LEAF_WORDS.get(t, ()) for t in types))
        if not types:
            return self._relax("type") if stated else self._anything
        if schema.get("nullable") is True:
            types.append("null")
        return Either(tuple(self._of_type(t, schema, depth) for t in dict.fromkeys(types)))

    def _of_type(self, type: str, schema: Mapping[str, Any], depth: int) -> Piece:
        match type:
            case "object":
                return All(("{", self._object(schema, depth), "}"))
            case "array":
                return self._array(schema, depth)
            case "boolean":
                return Either(tuple(map(self._spelling.known, (True, False))))
            case "null":
                return self._spelling.known(None)
        leaf = {"type": type, **{word: schema[word] for word in schema.keys() & _LEAF_WORDS[type]}}
        if type != "string":
            return Json(json.dumps(leaf))
        if not self._spelling.counts:
            self._relaxed |= leaf.keys() & STRING_WORDS
            return self._spelling.string({"type": type})
        return self._spelling.string(leaf)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Piece:
        properties, needed = members(schema)
        if properties and schema.get("additionalProperties", False) is not False:
            self._relax("additionalProperties")
        return self.members(properties, needed, schema.get("additionalProperties", True), depth)

    def _array(self, schema: Mapping[str, Any], depth: int) -> Piece:
        item = self.of(schema.get("items", True), depth + 1)
        if depth > 1:
            item = Rule(item)  # it stands there twice, so that arrays of arrays would double with each level
        least, most = times(schema, "minItems", "maxItems", self._relaxed)
        if most == 0:
            return "[]"
        more = Many(All((self._spelling.comma, item)), max(least - 1, 0), None if most is None else most - 1)
        some = All((item, more))
        return All(("[", some if least else maybe(some), "]"))

    def _reference(self, reference: str, depth: int, through: tuple[str, ...]) -> Piece:
        target = referred(reference, self._root)
        if target is None or reference in through:
            return self._relax("$ref")
        if reference not in self._references:
            self._references[reference] = rule = Rule()
            rule.body = self.of(target, depth + 1, (*through, reference))
            self._references[reference] = self._anything if rule.body is self._anything else rule
        return self._references[reference]

    def _any(self) -> Piece:
        """Any value."""
        written, value = self._spelling, Rule()
        self._anything = value
        scalars = (*map(written.known, (True, False, None)), written.string({"type": "string"}))
        number = Json('{"type": "number"}')
        array, inside = self._array({}, 0), self.members({}, (), True)
        value.body = Either((*scalars, number, array, All(("{", inside, "}"))))
        return value

    def _relax(self, word: str) -> Piece:
        self._relaxed.add(word)
        return self._anything


def hold(tool: Tool, spelling: Spelling, written: Spelling | None = None) -> tuple[Piece, tuple[str, ...]]:
    """The arguments of this tool, without brackets, and the words that are not held; `written` says how names are."""
    schema = Schema(tool.parameters)
    relaxed: set[str] = set() if schema.readable else {UNREADABLE}
    try:
        stated = arguments(schema.root, relaxed)
        body = Values(spelling, schema.root, relaxed).members(*stated, written=written)
    except RecursionError:
        relaxed = {UNREADABLE}
        body = Values(spelling, {}, relaxed).members({}, (), True, written=written)
    return body, tuple(sorted(relaxed))


def members(schema: Mapping[str, Any]) -> _Members:
    """The members that an object's schema states, in its order, and which of them are required."""
    stated, required = schema.get("properties"), schema.get("required")
    properties: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {}
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return {**properties, **{name: {} for name in needed if name not in properties}}, needed


def arguments(root: Mapping[str, Any], relaxed: set[str]) -> tuple[dict[str, Any], list[str], Any]:
    """The members of a tool's arguments, wherever the schema says them, and which are required.

    Third, the schema of members that are not stated: False unless none are.
    """
    properties, needed = _gathered(root, root, relaxed, 0, {})
    properties |= {name: {} for name in needed if name not in properties}
    others = root.get("additionalProperties", True)
    if properties and others is not True and others is not False:
        relaxed.add("additionalProperties")
    return properties, needed, False if properties else others


def _gathered(
    schema: Any, root: Mapping[str, Any], relaxed: set[str], depth: int, known: dict[str, _Members]
) -> _Members:
    """`known` are those of the references that have been followed; one that leads back to itself has none."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return {}, []
    relaxed |= schema.keys() & UNSAID - {"allOf"}
    stated, (_, needed) = schema.get("properties"), members(schema)
    properties = dict(stated) if isinstance(stated, dict) else {}
    elsewhere: list[_Members] = []
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = {}, []
            known[reference] = _gathered(referred(reference, root), root, relaxed, depth + 1, known)
        elsewhere.append(known[reference])
    for branch in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        elsewhere.append(_gathered(branch, root, relaxed, depth + 1, known))
    for inside, also in elsewhere:
        properties, needed = {**inside, **properties}, [*needed, *also]
    for word in ("anyOf", "oneOf"):
        for branch in schema[word] if isinstance(schema.get(word), list) else ():
            relaxed.add(word)
            properties = {**_gathered(branch, root, relaxed, depth + 1, known)[0], **properties}
    return properties, list(dict.fromkeys(needed))


def times(schema: Mapping[str, Any], least: str, most: str, relaxed: set[str]) -> tuple[int, int | None]:
    """How often, at least and at most."""
    low, high = schema.get(least, 0), schema.get(most, REPEAT_LIMIT + 1)
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= low <= min(high, REPEAT_LIMIT):
        relaxed |= {least, most} & schema.keys()
        return 0, None
    if high > REPEAT_LIMIT:
        relaxed |= {most} & schema.keys()
        return low, None
    return low, high
