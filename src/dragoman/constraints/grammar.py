"""Grammar expressions for constrained decoding, independent of the notation of an engine.

    Concat(("<parameter=city>\\n", RawText("\\n</parameter>")))            a raw string between tags
    Concat(("f(days=", JsonValue('{"type": "integer"}'), ")"))            a call as Python writes it

`RuleWriter` converts them to the rules of a text grammar.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dragoman.core.messages import JsonText
from dragoman.schema.type_names import with_json_types

WORD_CHARS: Final = 64
"""The longest property name that a model may invent. Vendors allow the same length for tool names."""


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value of this schema."""

    schema: JsonText
    arguments: bool = False
    """The value is the arguments of a call, so it is an object, whatever the schema says."""

    def read(self) -> Any:
        """Returns the decoded schema.

        Raises:
            ValueError, RecursionError: Python cannot read it.
        """
        stated = with_json_types(json.loads(self.schema))
        if not self.arguments:
            return stated
        return (stated if isinstance(stated, dict) else {}) | {"type": "object"}

    def value(self) -> Any:
        """Returns the decoded schema; that of any value if Python cannot read it."""
        try:
            return self.read()
        except (ValueError, RecursionError):
            return {"type": "object"} if self.arguments else {}


@dataclass(frozen=True, slots=True)
class RawText:
    """Text up to and including the first `end`, without any of `excluded` in it."""

    end: str
    excluded: tuple[str, ...] = ()
    """Each of them is either a suffix of `end`, or not contained in it."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name that the model invents, of letters, digits and underscores."""


@dataclass(frozen=True, slots=True)
class Concat:
    """The parts in sequence."""

    parts: "tuple[GrammarExpr, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: "tuple[GrammarExpr, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part, repeated `least` to `most` times (None: no limit)."""

    part: "GrammarExpr"
    least: int = 0
    most: int | None = None


@dataclass(eq=False, slots=True)
class RuleRef:
    """An expression that may be recursive. It becomes one rule, however often it is used."""

    body: "GrammarExpr" = field(default="", repr=False)


GrammarExpr: TypeAlias = str | JsonValue | RawText | Identifier | Concat | Choice | Repeat | RuleRef
"""A `str` matches itself."""


def optional(piece: GrammarExpr) -> GrammarExpr:
    """Returns an expression of `piece` or nothing."""
    return Repeat(piece, 0, 1)


def has_rules(piece: GrammarExpr) -> bool:
    """Returns whether the expression contains a `RuleRef`."""
    match piece:
        case RuleRef():
            return True
        case Concat(parts) | Choice(parts):
            return any(map(has_rules, parts))
        case Repeat(part):
            return has_rules(part)
        case _:
            return False


class RuleWriter:
    """Writes expressions as the rules of one text grammar. Equal bodies share a rule."""

    def __init__(self, literal: Callable[[str], str], leaf: Callable[[JsonValue | RawText | Identifier], str]) -> None:
        """Initialises the writer.

        Args:
            literal: Writes a string; "" for the empty string.
            leaf: Writes the expressions whose notation depends on the engine.
        """
        self._literal = literal
        self._leaf = leaf
        self._names: dict[str, str] = {}
        self._rules: dict[RuleRef, str] = {}
        self.rules_by_name: dict[str, str] = {}
        """Rule bodies by name."""

    def sequence_text(self, piece: GrammarExpr) -> str:
        """Returns the text that stands for this expression in a sequence."""
        match piece:
            case str():
                return self._literal(piece)
            case Concat(parts):
                return " ".join(filter(None, map(self.sequence_text, parts)))
            case Choice(parts):
                return self.name(" | ".join(self.sequence_text(part) or '""' for part in parts))
            case Repeat(part, least, most):
                times = {(0, 1): "?", (0, None): "*"}.get((least, most), f"{{{least},{'' if most is None else most}}}")
                return self.name(self.sequence_text(part)) + times
            case RuleRef(body):
                if piece not in self._rules:
                    name = self._rules[piece] = self._new("")
                    self.rules_by_name[name] = self.sequence_text(body) or '""'
                return self._rules[piece]
            case _:
                return self._leaf(piece)

    def name(self, body: str) -> str:
        """Returns the name of a rule with this body."""
        if body.isidentifier():
            return body
        if body not in self._names:
            self._names[body] = self._new(body)
        return self._names[body]

    def define(self, name: str, body: str) -> str:
        """Adds a rule with this name and body. Returns the name."""
        self.rules_by_name[name] = body
        return name

    def _new(self, body: str) -> str:
        return self.define(f"r{len(self.rules_by_name)}", body)
