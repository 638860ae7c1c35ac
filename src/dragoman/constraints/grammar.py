"""What a constrained decoder may write, in pieces that every grammar notation has.

    All(("<parameter=city>\\n", Raw("\\n</parameter>")))            a raw string between tags
    All(("f(days=", Json('{"type": "integer"}'), ")"))            a call as Python writes it

`Rules` turns them into the rules of a grammar that is text.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dragoman.core.messages import JsonText
from dragoman.schema.type_names import with_json_types

WORD_CHARS: Final = 64
"""The longest name that a model makes up for a member; vendors allow as much for a tool's."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value of this schema."""

    schema: JsonText
    arguments: bool = False
    """It holds all arguments of a call, so it is an object, whatever the schema says."""

    def read(self) -> Any:
        """The schema.

        Raises: ValueError, RecursionError: Python cannot read it.
        """
        stated = with_json_types(json.loads(self.schema))
        if not self.arguments:
            return stated
        return (stated if isinstance(stated, dict) else {}) | {"type": "object"}

    def value(self) -> Any:
        """The schema; where Python cannot read it, that of anything."""
        try:
            return self.read()
        except (ValueError, RecursionError):
            return {"type": "object"} if self.arguments else {}


@dataclass(frozen=True, slots=True)
class Raw:
    """Text up to the first `end`, which is taken too, with none of `never` in it."""

    end: str
    never: tuple[str, ...] = ()
    """None of them is part of the end, unless it ends that."""


@dataclass(frozen=True, slots=True)
class Word:
    """A name that the model makes up, of letters, digits and underscores."""


@dataclass(frozen=True, slots=True)
class All:
    """One behind the other."""

    parts: "tuple[Piece, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    """One of them."""

    parts: "tuple[Piece, ...]"


@dataclass(frozen=True, slots=True)
class Many:
    """The same again and again."""

    part: "Piece"
    least: int = 0
    most: int | None = None


@dataclass(eq=False, slots=True)
class Rule:
    """A piece that may stand in itself, and is written once however often it is meant."""

    body: "Piece" = field(default="", repr=False)


Piece: TypeAlias = str | Json | Raw | Word | All | Either | Many | Rule
"""A string stands for itself."""


def maybe(piece: Piece) -> Piece:
    """The piece, or nothing."""
    return Many(piece, 0, 1)


def has_rules(piece: Piece) -> bool:
    """Whether a `Rule` stands in it."""
    match piece:
        case Rule():
            return True
        case All(parts) | Either(parts):
            return any(map(has_rules, parts))
        case Many(part):
            return has_rules(part)
        case _:
            return False


class Rules:
    """The rules of one grammar, as text; bodies that are the same are one rule.

    `literal` writes a string, "" for none; `leaf` the pieces that each notation has in its own way.
    """

    def __init__(self, literal: Callable[[str], str], leaf: Callable[[Json | Raw | Word], str]) -> None:
        self._literal = literal
        self._leaf = leaf
        self._names: dict[str, str] = {}
        self._rules: dict[Rule, str] = {}
        self.made: dict[str, str] = {}
        """Bodies by name."""

    def of(self, piece: Piece) -> str:
        """What stands for this piece in a sequence."""
        match piece:
            case str():
                return self._literal(piece)
            case All(parts):
                return " ".join(filter(None, map(self.of, parts)))
            case Either(parts):
                return self.name(" | ".join(self.of(part) or '""' for part in parts))
            case Many(part, least, most):
                times = {(0, 1): "?", (0, None): "*"}.get((least, most), f"{{{least},{'' if most is None else most}}}")
                return self.name(self.of(part)) + times
            case Rule(body):
                if piece not in self._rules:
                    name = self._rules[piece] = self._new("")
                    self.made[name] = self.of(body) or '""'
                return self._rules[piece]
            case _:
                return self._leaf(piece)

    def name(self, body: str) -> str:
        """A rule of this body."""
        if body.isidentifier():
            return body
        if body not in self._names:
            self._names[body] = self._new(body)
        return self._names[body]

    def define(self, name: str, body: str) -> str:
        """A rule of this name and body."""
        self.made[name] = body
        return name

    def _new(self, body: str) -> str:
        return self.define(f"r{len(self.made)}", body)
