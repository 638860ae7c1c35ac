"""Writes calls with tagged parameters, from a past call or as a constraint by a tool's schema.

    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>

Strings are raw, other values JSON. Under a constraint, a string cannot contain its end marker, so it is read as it was
meant (`parsing/shapes/tagged.py`). Parameters come in the schema's order; others only if the schema names none.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.constraints.constraint import UNREADABLE, ConstrainedCall
from dragoman.constraints.grammar import Choice, Concat, GrammarExpr, Identifier, JsonValue, RawText, Repeat, optional
from dragoman.constraints.schema_values import STRING_KEYWORDS, TYPES, UNENFORCED, arguments
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.shapes.tagged import typed_values
from dragoman.schema.argument_types import (
    DEPTH_LIMIT,
    Schema,
    allowed_types,
    as_json,
    self_contained,
)
from dragoman.schema.keywords import json_type, resolve_ref
from dragoman.text.scanner import FIELD_LIMIT_CHARS

NAME: Final = re.compile(r"[^\s<>\"'&=|{}\[\](),]+(?: [^\s<>\"'&=|{}\[\](),]+)*")
"""A parameter's name that is unambiguous in all these formats."""
_ANNOTATIONS: Final = frozenset({"type", "title", "description", "default", "examples", "example", "$comment"})
ANYTHING: Final = "\0"
"""Represents a name that is not known."""

Kinds: TypeAlias = list[tuple[str, Mapping[str, Any]]]
"""The possible values: for each, a JSON type and the schema for that type."""


@dataclass(frozen=True, slots=True)
class TaggedWriter:
    """How such a call is written."""

    call_wrapper: Callable[[str], tuple[str, str]]
    """Returns the text before and after the parameters of this tool."""
    open: Callable[[str, str], str]
    """Returns the text before the value of this parameter, by name and JSON type."""
    end: str
    """The end of a value."""
    line: str
    """The text between two parameters."""
    closers: tuple[str, ...]
    """Other markers that the reader may read as the end of a raw value."""
    typed: bool = False
    """True if the text before a value states whether it is a string."""
    quote: tuple[str, str] = ("", "")
    """Optional quotes in which no other marker has a meaning; required around tags and line breaks."""
    inline: bool = False
    """True if a value that begins with a line break is written with one more at each end."""
    blank: str = ""
    """The content of a call without parameters."""

    def write_call(self, call: ToolCall) -> str:
        """Returns the call as the format writes it."""
        before, after = self.call_wrapper(call.name)
        return before + (self.write(call) or self.blank) + after

    def write(self, call: ToolCall) -> str:
        """Returns the parameters of the call."""
        return "".join(
            f"{self.open(name, kind)}{self._delimited(value)}{self.end}{self.line}"
            for name, value, kind in typed_values(call.arguments)
        )

    def constrain_call(self, tool: Tool) -> ConstrainedCall:
        """Returns the constraint for calls of this tool."""
        before, after = self.call_wrapper(tool.name)
        schema = Schema(tool.parameters)
        relaxed: set[str] = set() if schema.readable else {UNREADABLE}
        try:
            body = self._arguments(schema, relaxed)
        except RecursionError:
            relaxed = {UNREADABLE}
            body = self._arguments(Schema("{}"), relaxed)
        return ConstrainedCall(before, body, after, tuple(sorted(relaxed)))

    def _delimited(self, value: str) -> str:
        if self.inline and value.startswith("\n"):
            return f"\n{value}\n"
        opened, closed = self.quote
        return f"{opened}{value}{closed}" if opened and any(c in value for c in "<&\n") else value

    def _arguments(self, schema: Schema, relaxed: set[str]) -> GrammarExpr:
        properties, required, others = arguments(schema.root, relaxed)
        parts: list[GrammarExpr] = []
        if not properties and others is not False:
            parts.append(Repeat(self._parameter(ANYTHING, others, schema, relaxed)))
        for name, value_schema in properties.items():
            if NAME.fullmatch(name) and len(name) <= FIELD_LIMIT_CHARS:
                piece = self._parameter(name, value_schema, schema, relaxed)
                parts.append(piece if name in required else optional(piece))
            else:
                relaxed.add("properties")
        body = Concat(tuple(parts))
        return Choice((self.blank, body)) if self.blank and not required else body

    def _parameter(self, name: str, value_schema: Any, schema: Schema, relaxed: set[str]) -> GrammarExpr:
        types, kinds = schema.types_at(name), kinds_of(value_schema, schema.root, relaxed)
        kinds = kinds if self.typed else readable_kinds(kinds, types, relaxed)
        tags: dict[str, Kinds] = {}
        for kind, each in kinds:
            tags.setdefault(self.open(name, kind), []).append((kind, each))
        if self.typed:
            pieces = [
                Concat((tag_piece(tag), self._value(value_type, frozenset(), schema, relaxed)))
                for tag, value_type in tags.items()
            ]
        else:
            pieces = [Concat((tag_piece(next(iter(tags))), self._value(kinds, types, schema, relaxed)))]
        return Concat((pieces[0] if len(pieces) == 1 else Choice(tuple(pieces)), self.line))

    def _value(self, kinds: Kinds, types: frozenset[str], schema: Schema, relaxed: set[str]) -> GrammarExpr:
        """Returns the piece for a value and its end; `types` are those that the reader chooses from, empty if it does
        not choose."""
        if "string" not in {kind for kind, _ in kinds}:
            value = self_contained(
                {"anyOf": [each for _, each in kinds]} if len(kinds) > 1 else kinds[0][1], schema.root
            )
            return self._json(JsonValue(json.dumps(value, ensure_ascii=False)))
        known = [each["const"] for _, each in kinds if "const" in each]
        if len(known) == len(kinds):
            if texts := [text for text in (self._written(value, types, known) for value in known) if text is not None]:
                return Choice(tuple(text + self.end for text in texts))
            relaxed.add("enum")
        for kind, each in kinds:
            relaxed |= each.keys() & (UNENFORCED | STRING_KEYWORDS | {"const"}) if kind == "string" else set()
        relaxed |= {"type"} if may_be_misread(kinds, types) else set()
        return self._raw()

    def _written(self, value: Any, types: frozenset[str], known: Collection[Any]) -> str | None:
        """Returns a known value as text; None if it would be read as another value."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if types - {"string"} and json.loads(as_json(text, types, known)) != value:
            return None
        delimited = self._delimited(text) + self.end
        ends = (self.end, *self.closers)
        return None if any(0 <= delimited.find(each) < len(text) for each in ends) else self._delimited(text)

    def _raw(self) -> GrammarExpr:
        excluded = tuple(closer for closer in self.closers if closer != self.end)
        if not self.quote[0]:
            return RawText(self.end, excluded)
        quoted = Concat((self.quote[0], RawText(self.quote[1] + self.end)))
        return Choice((quoted, RawText(self.end, (*excluded, self.quote[0]))))

    def _json(self, value: JsonValue) -> GrammarExpr:
        if not self.quote[0]:
            return Concat((value, self.end))
        return Concat((Choice((value, Concat((self.quote[0], value, self.quote[1])))), self.end))


def tag_piece(tag: str) -> GrammarExpr:
    """Returns the piece for a tag, with any identifier for an unknown name."""
    before, unknown, after = tag.partition(ANYTHING)
    return Concat((before, Identifier(), after)) if unknown else tag


def readable_kinds(kinds: Kinds, types: frozenset[str], relaxed: set[str]) -> Kinds:
    """Returns the kinds that the reader can recognise a value as.

    Args:
        kinds: The values that the schema allows.
        types: The JSON types that the reader may recognise the value as.
        relaxed: Gets "type" if a kind had to be left out.
    """
    accepted = types | ({"number"} if "integer" in types else set())
    readable = [each for each in kinds if each[0] in accepted]
    relaxed |= {"type"} if len(readable) < len(kinds) else set()
    return readable or [(type, {"type": type}) for type in sorted(accepted - {"integer"})]


def may_be_misread(kinds: Kinds, types: frozenset[str]) -> bool:
    """Returns True if a raw string of one of these types may be read as a value that the schema does not allow."""
    mixed = types - {"string"}
    is_ambiguous = "number" not in mixed >= {"integer"} or any(each.keys() - _ANNOTATIONS for _, each in kinds)
    return bool(mixed) and is_ambiguous


def kinds_of(schema: Any, root: Mapping[str, Any], relaxed: set[str]) -> Kinds:
    """Returns the possible values of this schema.

    Args:
        schema: The schema of a value.
        root: The schema that its references point into.
        relaxed: Gets the keywords that the result does not enforce.
    """
    if kinds := _kinds(schema, root, relaxed, 0, set()):
        return kinds
    relaxed.add("$ref")
    return _kinds({}, root, relaxed, 0, set())


def _kinds(schema: Any, root: Mapping[str, Any], relaxed: set[str], depth: int, followed: set[str]) -> Kinds:
    """Returns the possible values. `followed` are references already followed, which are not followed again."""
    if not isinstance(schema, dict) or depth > DEPTH_LIMIT:
        relaxed |= {"depth"} if depth > DEPTH_LIMIT else set()
        schema = {}
    if isinstance(reference := schema.get("$ref"), str):
        if reference in followed:
            return []
        followed.add(reference)
        target = resolve_ref(reference, root)
        relaxed |= {"$ref"} if target is None else schema.keys() & UNENFORCED
        return _kinds(target, root, relaxed, depth + 1, followed)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list) and values:
        return [(json_type(value), {"const": value}) for value in values]
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list) and branches and "properties" not in schema:
        return [kind for branch in branches for kind in _kinds(branch, root, relaxed, depth + 1, followed)]
    return _kinds_by_type(schema, allowed_types(schema, root), relaxed)


def _kinds_by_type(schema: Mapping[str, Any], types: frozenset[str], relaxed: set[str]) -> Kinds:
    """Returns the possible values of a schema that lists neither values nor branches."""
    stated = schema.get("type")
    if stated and not any(each in TYPES for each in (stated if isinstance(stated, list) else [stated])):
        relaxed.add("type")
    keywords = {word: schema[word] for word in schema.keys() - {"$defs", "definitions", "nullable"}}
    json_types = [t for t in TYPES if t in types and not (t == "integer" and "number" in types)]
    return [("number" if t == "integer" else t, {**keywords, "type": t}) for t in json_types]
