"""Constraints for nested values between tags, by a tool's schema.

    <k><a>1</a><b>2</b></k>                                                 `parsing/shapes/nested/elements.py`
    <v name="k" type="dict"><v name="a" type="json">1</v>…</v>              `parsing/shapes/nested/typed_values.py`

Strings are raw and cannot contain their end marker; numbers and literals are JSON. Objects have the members of their
schema, in its order, and others only if the schema names none.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dragoman.constraints.constraint import UNREADABLE, ConstrainedCall
from dragoman.constraints.grammar import Choice, Concat, GrammarExpr, JsonValue, RawText, Repeat, RuleRef, optional
from dragoman.constraints.schema_values import (
    NUMBER_KEYWORDS,
    STRING_KEYWORDS,
    UNENFORCED,
    arguments,
    members,
    repeat_bounds,
)
from dragoman.core.messages import Tool
from dragoman.parsing.shapes.tagged_writer import ANYTHING, Kinds, kinds_of, may_be_misread, readable_kinds, tag_piece
from dragoman.schema.argument_types import DEPTH_LIMIT, Schema, allowed_types, as_json, sub_schema

ITEM: Final = "item"
"""The name of an array's elements, if they have one."""
_HOLDERS: Final = frozenset({"object", "array"})
_BLANK: Final = frozenset({"object", "array", "null"})
"""An empty value of one of these types is an object or array."""


@dataclass(frozen=True, slots=True)
class NestedWriter:
    """How such values are written."""

    takes: Callable[[str], bool]
    """Returns True if a member with this name can be written."""
    open: Callable[[str | None, str], str]
    """Returns the text before a value, by its name (None for an item) and JSON type."""
    end: str
    """The end of a value, which no string contains."""
    close: Callable[[str | None], str]
    """Returns the text after that, by the value's name."""
    mark: str = ""
    """The text before the opening of a value, and before the end of all."""
    typed: bool = False
    """True if the text before a value states its type; otherwise the tool's schema does."""

    def constrain_call(self, tool: Tool, before: str, after: str) -> ConstrainedCall:
        """Returns the constraint for calls of this tool.

        Args:
            tool: The tool to be called.
            before: Text before the arguments.
            after: Text after them.
        """
        schema = Schema(tool.parameters)
        relaxed: set[str] = set() if schema.readable else {UNREADABLE}
        try:
            body = _Values(self, schema.root, relaxed).arguments()
        except RecursionError:
            relaxed = {UNREADABLE}
            body = _Values(self, {}, relaxed).arguments()
        return ConstrainedCall(before, Concat((body, self.mark)), after, tuple(sorted(relaxed)))


class _Values:
    """Converts the parts of one schema to grammar pieces.

    Each part is paired with the schema that the reader finds at its position (`inside`), which decides how a text is
    read.
    """

    def __init__(self, nesting: NestedWriter, root: Mapping[str, Any], relaxed: set[str]) -> None:
        self._n = nesting
        self._root = root
        self._relaxed = relaxed
        self._rules_by_node: dict[tuple[int, int, int], tuple[RuleRef, Any]] = {}
        """Objects and arrays, by the identity of their schemas, which are kept so that no others get it."""
        self._repeated_rules: set[RuleRef] = set()

    def arguments(self) -> GrammarExpr:
        """Returns the piece for all arguments."""
        return self._members(*arguments(self._root, self._relaxed), self._root, frozenset({"object"}), 0)

    def _members(
        self,
        properties: Mapping[str, Any],
        required: list[str],
        others: Any,
        node: Any,
        types: frozenset[str],
        depth: int,
    ) -> GrammarExpr:
        if not properties:
            if others is False:
                return ""
            # No grammar holds a closing tag to the name in the opening one.
            self._relaxed |= set() if self._n.typed else {"additionalProperties"}
            return Repeat(self._element(ANYTHING, others, sub_schema(node, ANYTHING, self._root), depth))
        parts: list[GrammarExpr] = []
        for name, schema in properties.items():
            if not self._n.takes(name) or (not self._n.typed and name == ITEM and "array" in types):
                self._relaxed.add("properties")
                continue
            piece = self._element(name, schema, sub_schema(node, name, self._root), depth)
            parts.append(piece if name in required else optional(piece))
        return Concat(tuple(parts))

    def _element(self, name: str | None, schema: Any, node: Any, depth: int) -> GrammarExpr:
        # Schemas without constraints share one rule: the grammar for any value is long.
        schema, node = (each if isinstance(each, dict) and each else None for each in (schema, node))
        if depth > DEPTH_LIMIT:
            self._relaxed.add("depth")
            schema = node = None
        kinds, types = kinds_of(schema, self._root, self._relaxed), allowed_types(node, self._root)
        if not self._n.typed:
            kinds = readable_kinds(kinds, types, self._relaxed)
        tags: dict[str, list[GrammarExpr]] = {}
        for kind, value in self._values(kinds, types, (schema, node), depth):
            tags.setdefault(self._n.open(name, kind), []).append(value)
        parts = [Concat((tag_piece(tag), _either(values))) for tag, values in tags.items()]
        return Concat((self._n.mark, _either(parts), tag_piece(self._n.close(name))))

    def _values(
        self, kinds: Kinds, types: frozenset[str], place: tuple[Any, Any], depth: int
    ) -> Iterator[tuple[str, GrammarExpr]]:
        """Yields the possible contents of a tag up to its end, each with the type that the tag states."""
        stated = [each["const"] for _, each in kinds if "const" in each]
        known = [(kind, text) for value in stated for kind, text in self._known(value, types)]
        is_unrestricted = len(stated) == len(kinds) and not known
        self._relaxed |= {"enum"} if is_unrestricted else set()
        raw = is_unrestricted or any(kind == "string" and "const" not in each for kind, each in kinds)
        if raw:
            yield "string", RawText(self._n.end)
        # What the tag does not tell from a raw string is one, as far as a grammar goes.
        hidden = raw and not self._n.typed
        self._relaxed |= {"type"} if hidden and may_be_misread(kinds, types) else set()
        for kind, text in known:
            if not (hidden or (raw and kind == "string")):
                yield kind, text + self._n.end
        yield from self._values_by_type(kinds, types, place, depth, hidden)

    def _values_by_type(
        self, kinds: Kinds, types: frozenset[str], place: tuple[Any, Any], depth: int, hidden: bool
    ) -> Iterator[tuple[str, GrammarExpr]]:
        """Yields the contents that are neither raw strings nor stated by the schema; `hidden`: a raw string may be any
        of them but an object or array.
        """
        for index, (kind, each) in enumerate(kinds):
            self._report_relaxed(kind, each)
            if "const" in each or kind == "string":
                continue
            if kind in _HOLDERS:
                yield kind, self._holder(kind, each, types, (*place, index), depth)
            elif not hidden:
                yield kind, Concat((_scalar(each), self._n.end))

    def _known(self, value: Any, types: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yields a known value as text, with the type that its tag states; nothing if it would be misread."""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if self._n.typed and not isinstance(value, str):
            yield "number", text
        elif (text + self._n.end).find(self._n.end) == len(text):
            is_verbatim = self._n.typed or types == {"string"}
            if is_verbatim or json.loads(as_json(text, types)) == value:
                yield "string", text

    def _report_relaxed(self, kind: str, each: Mapping[str, Any]) -> None:
        """Records the keywords that the constraint does not enforce for such a value."""
        self._relaxed |= each.keys() & (UNENFORCED | {"anyOf", "oneOf"}) - NUMBER_KEYWORDS - STRING_KEYWORDS
        self._relaxed |= each.keys() & STRING_KEYWORDS if kind == "string" else set()

    def _holder(
        self, kind: str, each: Mapping[str, Any], types: frozenset[str], place: tuple[Any, Any, int], depth: int
    ) -> GrammarExpr:
        """Returns the piece for an object or array and its end; a rule, if it is recursive or occurs again."""
        key = (id(place[0]), id(place[1]), place[2])
        if key in self._rules_by_node:
            self._repeated_rules.add(self._rules_by_node[key][0])
            return self._rules_by_node[key][0]
        rule = RuleRef()
        self._rules_by_node[key] = rule, place
        fill = self._object if kind == "object" else self._array
        rule.body = Concat((fill(each, place[1], types, depth + 1), self._n.end))
        return rule if rule in self._repeated_rules else rule.body

    def _object(self, each: Mapping[str, Any], node: Any, types: frozenset[str], depth: int) -> GrammarExpr:
        properties, required = members(each)
        others = each.get("additionalProperties", True)
        if properties and each.get("additionalProperties", False) is not False:
            self._relaxed.add("additionalProperties")
        body = self._members(properties, required, others, node, types, depth)
        if self._n.typed or required:
            return body
        if not types <= _BLANK and "string" not in types:
            self._relaxed.add("type")  # an empty value is read as a string
        return Choice(("{}", body))

    def _array(self, each: Mapping[str, Any], node: Any, types: frozenset[str], depth: int) -> GrammarExpr:
        item = self._element(None, each.get("items", True), sub_schema(node, None, self._root), depth)
        least, most = repeat_bounds(each, "minItems", "maxItems", self._relaxed)
        if self._n.typed or least:
            return "" if most == 0 else Repeat(item, least, most)
        # An empty value is read as an object or a string if the schema allows one.
        some = Repeat(item, 0 if types <= _BLANK - {"object"} else 1, most)
        return "[]" if most == 0 else Choice(("[]", some))


def _scalar(each: Mapping[str, Any]) -> JsonValue:
    return JsonValue(json.dumps({word: each[word] for word in each.keys() & ({"type"} | NUMBER_KEYWORDS)}))


def _either(pieces: Sequence[GrammarExpr]) -> GrammarExpr:
    return pieces[0] if len(pieces) == 1 else Choice(tuple(pieces))
