"""Converts a JSON Schema to a grammar of the values that it accepts, in the notation of JSON, Python or similar.

    {"type": "object", "properties": {"n": {"type": "integer"}}}        {"n": 3}      {n:3}      {"n": 3}

Objects have the properties that their schema states, in its order, and others only if it states none. Keywords that a
grammar cannot enforce are reported in `relaxed`.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.constraints.constraint import UNREADABLE
from dragoman.constraints.grammar import Choice, Concat, GrammarExpr, JsonValue, Repeat, RuleRef, optional
from dragoman.core.messages import Tool
from dragoman.schema.argument_types import DEPTH_LIMIT, Schema
from dragoman.schema.keywords import resolve_ref

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
NUMBER_KEYWORDS: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
STRING_KEYWORDS: Final = frozenset({"format", "maxLength", "minLength", "pattern"})
_SCALAR_KEYWORDS: Final = {"string": STRING_KEYWORDS, "number": NUMBER_KEYWORDS, "integer": NUMBER_KEYWORDS}
"""Keywords of scalars. The writer of the scalar enforces them, or reports them."""
UNENFORCED: Final = frozenset(
    {
        *("allOf", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else", "format", "if"),
        *("maxContains", "maxProperties", "minContains", "minProperties", "not", "pattern", "patternProperties"),
        *("prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"),
        *NUMBER_KEYWORDS,
    }
)
"""What pieces do not say, but for what scalars arguments_grammar themselves."""
_Members: TypeAlias = tuple[dict[str, Any], list[str]]
"""The schemas of an object's properties by name, and the names of the required ones."""
REPEAT_LIMIT: Final = 1000
"""Larger lengths and counts are not enforced: llama.cpp rejects a grammar with 2,000 repetitions."""


@dataclass(frozen=True, slots=True)
class ValueNotation:
    """How a notation writes values. Brackets are those of JSON."""

    known: Callable[[Any], str]
    """Writes a constant of the schema; "" if the notation cannot write it."""
    string: Callable[[Mapping[str, Any]], GrammarExpr]
    """Any string of a schema with `type` and `STRING_KEYWORDS`."""
    key: Callable[[str], GrammarExpr]
    """Writes a property name and the text before its value; "" if the notation cannot write it."""
    any_key: GrammarExpr
    comma: GrammarExpr
    order: Callable[[str], str] = lambda _: ""
    """Sort key of properties; by default they keep the order of the schema."""
    counts: bool = True
    """Strings can be constrained by `STRING_KEYWORDS`."""
    anything: GrammarExpr | None = None
    """Any value, if the notation has an expression for it."""


def _json_key(name: str) -> GrammarExpr:
    return Concat((json.dumps(name, ensure_ascii=False) + ":", optional(" ")))


_STRING: Final = JsonValue('{"type": "string"}')
JSON: Final = ValueNotation(
    known=lambda value: json.dumps(value, ensure_ascii=False),
    string=lambda schema: JsonValue(json.dumps(schema)),
    key=_json_key,
    any_key=Concat((_STRING, ":", optional(" "))),
    comma=Concat((",", optional(" "))),
    anything=JsonValue("{}"),
)


class ValueGrammar:
    """Converts the parts of one schema to grammar expressions."""

    def __init__(self, spelling: ValueNotation, root: Mapping[str, Any], relaxed: set[str]) -> None:
        self._spelling = spelling
        self._root = root
        self._relaxed = relaxed
        self._references: dict[str, GrammarExpr] = {}
        self._anything: GrammarExpr = spelling.anything or self._any()

    def value(self, schema: Any, depth: int = 0, followed: tuple[str, ...] = ()) -> GrammarExpr:
        """Returns the expression of a value of this schema.

        `followed`: the references that were followed for this value, to detect cycles.
        """
        if not isinstance(schema, dict):
            return self._anything
        if depth > DEPTH_LIMIT:
            return self._relax("depth")
        if isinstance(schema.get("$ref"), str):
            self._relaxed |= schema.keys() & UNENFORCED
            return self._reference(schema["$ref"], depth, followed)
        if known := self._known(schema):
            self._relaxed |= schema.keys() & UNENFORCED
            return Choice(tuple(known))
        branches = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(branches, list) and branches:
            if "properties" not in schema:
                self._relaxed |= schema.keys() & UNENFORCED
                return Choice(tuple(self.value(b, depth + 1, followed) for b in branches))
            self._relaxed |= {"anyOf", "oneOf"} & schema.keys()
        return self._of_types(schema, depth)

    def members(
        self,
        properties: Mapping[str, Any],
        required_names: Collection[str],
        others: Any,
        depth: int = 0,
        written: ValueNotation | None = None,
    ) -> GrammarExpr:
        """Returns the expression of an object without its brackets.

        Args:
            properties: Schemas by name.
            required_names: Names of the required properties.
            others: Schema of other properties, used if none is stated; False if there are none.
            depth: Nesting depth of the object.
            written: Notation of the property names, if it differs from that of the values.
        """
        written = written or self._spelling
        comma = written.comma
        if not properties:
            if others is False:
                return ""
            member = Concat((written.any_key, self.value(others, depth + 1)))
            return optional(Concat((member, Repeat(Concat((comma, member))))))
        keys = {name: written.key(name) for name in sorted(properties, key=written.order)}
        stated = [(Concat((key, self.value(properties[name], depth + 1))), name) for name, key in keys.items() if key]
        if len(stated) < len(properties):
            self._relax("properties")
            required_names = [name for name in required_names if keys[name]]
        firsts: list[GrammarExpr] = []
        rest: GrammarExpr = ""
        for member, name in reversed(stated):
            required = name in required_names
            if required:
                firsts = []
            firsts.insert(0, Concat((member, rest)))
            next_member = Concat((comma, member))
            # A rule, because each earlier property refers to it too: keeps the grammar small for many properties.
            rest = RuleRef(Concat((next_member if required else optional(next_member), rest)))
        return Choice(tuple(firsts)) if required_names else optional(Choice(tuple(firsts)))

    def _known(self, schema: Mapping[str, Any]) -> list[str]:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not isinstance(values, list) or not values:
            return []
        written = [text for text in map(self._spelling.known, values) if text]
        self._relaxed |= set() if written else {"enum"}
        return written

    def _of_types(self, schema: Mapping[str, Any], depth: int) -> GrammarExpr:
        stated = schema.get("type") or ("object" if "properties" in schema else "array" if "items" in schema else [])
        types = [t for t in (stated if isinstance(stated, list) else [stated]) if t in TYPES]
        self._relaxed |= schema.keys() & UNENFORCED - frozenset().union(*(_SCALAR_KEYWORDS.get(t, ()) for t in types))
        if not types:
            return self._relax("type") if stated else self._anything
        if schema.get("nullable") is True:
            types.append("null")
        return Choice(tuple(self._of_type(t, schema, depth) for t in dict.fromkeys(types)))

    def _of_type(self, type: str, schema: Mapping[str, Any], depth: int) -> GrammarExpr:
        match type:
            case "object":
                return Concat(("{", self._object(schema, depth), "}"))
            case "array":
                return self._array(schema, depth)
            case "boolean":
                return Choice(tuple(map(self._spelling.known, (True, False))))
            case "null":
                return self._spelling.known(None)
        leaf = {"type": type, **{word: schema[word] for word in schema.keys() & _SCALAR_KEYWORDS[type]}}
        if type != "string":
            return JsonValue(json.dumps(leaf))
        if not self._spelling.counts:
            self._relaxed |= leaf.keys() & STRING_KEYWORDS
            return self._spelling.string({"type": type})
        return self._spelling.string(leaf)

    def _object(self, schema: Mapping[str, Any], depth: int) -> GrammarExpr:
        properties, required = members(schema)
        if properties and schema.get("additionalProperties", False) is not False:
            self._relax("additionalProperties")
        return self.members(properties, required, schema.get("additionalProperties", True), depth)

    def _array(self, schema: Mapping[str, Any], depth: int) -> GrammarExpr:
        item = self.value(schema.get("items", True), depth + 1)
        if depth > 1:
            item = RuleRef(item)  # used twice, so that nested arrays would double the grammar at each level
        least, most = repeat_bounds(schema, "minItems", "maxItems", self._relaxed)
        if most == 0:
            return "[]"
        more = Repeat(Concat((self._spelling.comma, item)), max(least - 1, 0), None if most is None else most - 1)
        some = Concat((item, more))
        return Concat(("[", some if least else optional(some), "]"))

    def _reference(self, reference: str, depth: int, followed: tuple[str, ...]) -> GrammarExpr:
        target = resolve_ref(reference, self._root)
        if target is None or reference in followed:
            return self._relax("$ref")
        if reference not in self._references:
            self._references[reference] = rule = RuleRef()
            rule.body = self.value(target, depth + 1, (*followed, reference))
            self._references[reference] = self._anything if rule.body is self._anything else rule
        return self._references[reference]

    def _any(self) -> GrammarExpr:
        """Builds the expression of any value."""
        written, value = self._spelling, RuleRef()
        self._anything = value
        scalars = (*map(written.known, (True, False, None)), written.string({"type": "string"}))
        number = JsonValue('{"type": "number"}')
        array, object_members = self._array({}, 0), self.members({}, (), True)
        value.body = Choice((*scalars, number, array, Concat(("{", object_members, "}"))))
        return value

    def _relax(self, word: str) -> GrammarExpr:
        self._relaxed.add(word)
        return self._anything


def arguments_grammar(
    tool: Tool, spelling: ValueNotation, written: ValueNotation | None = None
) -> tuple[GrammarExpr, tuple[str, ...]]:
    """Returns the grammar of a tool's arguments, without brackets, and the keywords that it does not enforce.

    Args:
        tool: The tool.
        spelling: Notation of the values.
        written: Notation of the argument names, if it differs.
    """
    schema = Schema(tool.parameters)
    relaxed: set[str] = set() if schema.readable else {UNREADABLE}
    try:
        stated = arguments(schema.root, relaxed)
        body = ValueGrammar(spelling, schema.root, relaxed).members(*stated, written=written)
    except RecursionError:
        relaxed = {UNREADABLE}
        body = ValueGrammar(spelling, {}, relaxed).members({}, (), True, written=written)
    return body, tuple(sorted(relaxed))


def members(schema: Mapping[str, Any]) -> _Members:
    """Returns the properties that an object's schema states, in its order, and the names of the required ones."""
    stated, required = schema.get("properties"), schema.get("required")
    properties: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {}
    property_names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return {**properties, **{name: {} for name in property_names if name not in properties}}, property_names


def arguments(root: Mapping[str, Any], relaxed: set[str]) -> tuple[dict[str, Any], list[str], Any]:
    """Returns a tool's parameters, also from references and combined schemas, and the names of the required ones.

    The third item is the schema of other parameters: False if any parameter is stated.
    """
    properties, required = _gathered(root, root, relaxed, 0, {})
    properties |= {name: {} for name in required if name not in properties}
    others = root.get("additionalProperties", True)
    if properties and others is not True and others is not False:
        relaxed.add("additionalProperties")
    return properties, required, False if properties else others


def _gathered(
    schema: Any, root: Mapping[str, Any], relaxed: set[str], depth: int, known: dict[str, _Members]
) -> _Members:
    """`known`: the properties of references that were followed already; none for a recursive one."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        return {}, []
    relaxed |= schema.keys() & UNENFORCED - {"allOf"}
    stated, (_, required) = schema.get("properties"), members(schema)
    properties = dict(stated) if isinstance(stated, dict) else {}
    elsewhere: list[_Members] = []
    if isinstance(reference := schema.get("$ref"), str):
        if reference not in known:
            known[reference] = {}, []
            known[reference] = _gathered(resolve_ref(reference, root), root, relaxed, depth + 1, known)
        elsewhere.append(known[reference])
    for branch in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        elsewhere.append(_gathered(branch, root, relaxed, depth + 1, known))
    for more_properties, more_required in elsewhere:
        properties, required = {**more_properties, **properties}, [*required, *more_required]
    for word in ("anyOf", "oneOf"):
        for branch in schema[word] if isinstance(schema.get(word), list) else ():
            relaxed.add(word)
            properties = {**_gathered(branch, root, relaxed, depth + 1, known)[0], **properties}
    return properties, list(dict.fromkeys(required))


def repeat_bounds(schema: Mapping[str, Any], least: str, most: str, relaxed: set[str]) -> tuple[int, int | None]:
    """Returns the bounds of two keywords, None for no upper bound; (0, None) if they are invalid or too large.

    Args:
        schema: The schema.
        least: The keyword of the lower bound, such as `minItems`.
        most: The keyword of the upper bound.
        relaxed: Gets the keywords that are not enforced.
    """
    low, high = schema.get(least, 0), schema.get(most, REPEAT_LIMIT + 1)
    if not isinstance(low, int) or not isinstance(high, int) or not 0 <= low <= min(high, REPEAT_LIMIT):
        relaxed |= {least, most} & schema.keys()
        return 0, None
    if high > REPEAT_LIMIT:
        relaxed |= {most} & schema.keys()
        return low, None
    return low, high
