"""Random tool schemas, each with valid arguments, and with the same arguments after typical errors of models.

`Made(random)` generates one, determined by the random numbers: the same seed gives the same schema. Each place knows
the errors that can happen there. (The package hypothesis-jsonschema supports only draft 7, had its last release in
2024, and generates only valid values, so errors could not be placed.)
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, TypeAlias

NAMES = (
    "file_path",
    "max_results",
    "user_id",
    "city",
    "unit",
    "is_open",
    "start_line",
    "tag_list",
    "reply_to",
    "size",
    "color",
    "owner",
    "kind_of",
)
WORDS = (
    "Rome",
    "a b",
    "x-1",
    "https://example.com/?q=1",
    "Zoë",
    "日本",
    "line\nline",
    '"',
    "12",
    "1.5",
    "true",
    "[1]",
)
OPTIONS = ("celsius", "fahrenheit", "in_progress", "done", "low", "high", "read_only", "json")
MOST_MEMBERS = 4


Slip: TypeAlias = tuple[str, Callable[[Any], Any]]
"""The repair step, and a function that writes the value with the error."""


@dataclass
class Place:
    """One part of a schema, with a valid value."""

    schema: dict[str, Any]
    value: Any
    parts: "dict[str | int, Place]" = field(default_factory=dict)
    slips: list[Slip] = field(default_factory=list)

    def all(self, path: tuple[str | int, ...] = ()) -> "Iterator[tuple[tuple[str | int, ...], Place]]":
        """This place and all inside it."""
        yield path, self
        for name, part in self.parts.items():
            yield from part.all((*path, name))


class Made:
    """A schema, and arguments for it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._defs: dict[str, Any] = {}
        self.root = self._object(3)
        self.schema = {**self.root.schema, **({"$defs": self._defs} if self._defs else {})}
        self.value: dict[str, Any] = self.root.value
        self.root.slips.append(("unnest", lambda value: {"arguments": value}))
        self.root.slips.append(("parse_string", json.dumps))

    def slipped(self, number: int) -> tuple[list[str], Any]:
        """Returns the repair steps, and the arguments with errors at up to `number` places, none inside another."""
        places = [(path, place) for path, place in self.root.all() if place.slips]
        value: Any = self.value
        steps: list[str] = []
        done: list[tuple[str | int, ...]] = []
        for path, place in self._random.sample(places, min(number, len(places))):
            if not any(path[: len(each)] == each or each[: len(path)] == path for each in done):
                step, slip = self._random.choice(place.slips)
                value = _put(value, path, slip)
                steps.append(step)
                done.append(path)
        return steps, value

    def text(self, value: Any) -> str:
        """The value as JSON, in a random style."""
        ascii, indent = self._random.random() < 0.5, self._random.choice([None, 2])
        separators = self._random.choice([(",", ":"), (", ", ": "), (" ,", " : ")])
        return json.dumps(value, ensure_ascii=ascii, indent=indent, separators=separators)

    def _place(self, depth: int) -> Place:
        kinds = [self._number, self._number, self._text, self._text, self._option, self._option, self._flag]
        if depth:
            kinds += [self._list, self._list, self._tuple, self._object, self._object, self._maybe, self._either]
            kinds += [self._referred, self._both]
        return self._random.choice(kinds)(depth - 1)

    def _number(self, depth: int) -> Place:
        if self._random.random() < 0.7:
            whole = self._random.choice([0, 1, -3, 42, 10**18, 12345678901234567890123])
            bounds = self._random.choice([{}, {"minimum": -5}, {"maximum": 10**30}])
            return Place({"type": "integer", **bounds}, whole, slips=[("to_number", str), ("unwrap", _in_list)])
        broken = self._random.choice([0.5, -2.25, 1e300, 7.0])
        return Place({"type": "number"}, broken, slips=[("to_number", json.dumps), ("unwrap", _in_list)])

    def _text(self, depth: int) -> Place:
        if self._random.random() < 0.2:
            return Place({"type": "string", "format": "date"}, "2026-01-31", slips=[("unwrap", _in_list)])
        word = self._random.choice(WORDS)
        slips: list[Slip] = [("unwrap", _in_list)]
        if word in ("12", "1.5", "true"):
            slips.append(("to_string", json.loads))
        return Place(
            {"type": "string", **self._random.choice([{}, {"minLength": 1}, {"pattern": "."}])}, word, slips=slips
        )

    def _option(self, depth: int) -> Place:
        options = self._random.sample(OPTIONS, self._random.randint(1, 4))
        meant = self._random.choice(options)
        slips: list[Slip] = [
            ("match_enum", str.upper),
            ("match_enum", lambda text: text.title().replace("_", " ")),
            ("unwrap", _in_list),
        ]
        if len(options) == 1 and self._random.random() < 0.5:
            return Place({"const": meant}, meant, slips=slips)
        mixed: tuple[Any, ...] = self._random.choice([(), (None,), (7,)])
        return Place({"enum": [*options, *mixed]}, meant, slips=slips)

    def _flag(self, depth: int) -> Place:
        slips: list[Slip] = [("to_boolean", str), ("to_boolean", json.dumps)]
        return Place({"type": "boolean"}, self._random.random() < 0.5, slips=slips)

    def _list(self, depth: int) -> Place:
        """All items have one schema; the others are copies of the first."""
        one = self._place(depth)
        number = self._random.choice([0, 1, 1, 2, 3])
        parts: dict[str | int, Place] = dict.fromkeys(range(number), one)
        slips: list[Slip] = [("parse_string", json.dumps)]
        if number == 1 and not isinstance(one.value, list) and one.value not in ({}, "[1]"):
            slips.append(("wrap", lambda value: value[0]))
        return Place({"type": "array", "items": one.schema}, [one.value] * number, parts, slips)

    def _tuple(self, depth: int) -> Place:
        made = [self._place(depth) for _ in range(2)]
        schema = {"type": "array", "prefixItems": [each.schema for each in made], "minItems": 2}
        return Place(schema, [each.value for each in made], dict(enumerate(made)), [("parse_string", json.dumps)])

    def _object(self, depth: int) -> Place:
        names = self._random.sample(NAMES, self._random.randint(1, MOST_MEMBERS))
        known = {name: self._place(depth) for name in names}
        there = [name for name in names if self._random.random() < 0.7]
        required = [name for name in there if self._random.random() < 0.5]
        schema: dict[str, Any] = {"type": "object", "properties": {name: known[name].schema for name in names}}
        schema |= {"required": required} if required else {}
        closed = self._random.random() < 0.6
        schema |= {"additionalProperties": False} if closed else self._random.choice([{}, {"minProperties": 0}])
        value = {name: known[name].value for name in there}
        slips = self._slips_of_members(known, there, required if not closed else there, closed)
        return Place(schema, value, {name: known[name] for name in there}, slips)

    def _slips_of_members(self, known: dict[str, Place], there: list[str], seen: list[str], closed: bool) -> list[Slip]:
        slips: list[Slip] = []
        for name in seen:
            if "_" in name:
                slips += [("rename_key", partial(_renamed, old=name, new=new)) for new in (_camel(name), name.upper())]
        for name in set(known) - set(there):
            if known[name].schema.get("type") in ("string", "integer", "number", "boolean", "array"):
                slips.append(("drop_null_optional", partial(_with, added={name: None})))
        if closed and there:
            slips.append(("drop_unknown", partial(_with, added={"explanation": "as was asked"})))
        for name in seen:
            if self._random.random() < 0.2 and "$ref" not in known[name].schema:
                known[name].schema["default"] = known[name].value
        return slips

    def _maybe(self, depth: int) -> Place:
        one = self._place(depth)
        return Place({"anyOf": [one.schema, {"type": "null"}]}, one.value, one.parts, one.slips)

    def _either(self, depth: int) -> Place:
        """One of two objects, which a constant distinguishes."""
        one, other = self._object(depth), self._object(depth)
        for place, mark in ((one, "circle"), (other, "square")):
            place.schema["properties"] = {"shape": {"const": mark}} | place.schema["properties"]
            place.schema["required"] = ["shape", *place.schema.get("required", [])]
        value = {"shape": "circle"} | one.value
        parts = {"shape": Place({"const": "circle"}, "circle", slips=[("match_enum", str.title)]), **one.parts}
        return Place({"oneOf": [one.schema, other.schema]}, value, parts, one.slips)

    def _referred(self, depth: int) -> Place:
        one = self._place(depth)
        name = f"d{len(self._defs)}"
        self._defs[name] = one.schema
        return Place({"$ref": f"#/$defs/{name}"}, one.value, one.parts, one.slips)

    def _both(self, depth: int) -> Place:
        one = self._object(depth)
        one.schema.pop("additionalProperties", None)
        slips = [(step, slip) for step, slip in one.slips if step == "drop_null_optional"]
        return Place({"allOf": [one.schema], "unevaluatedProperties": False}, one.value, one.parts, slips)


def _in_list(value: Any) -> Any:
    return [value]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _with(value: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    return value | added


def _renamed(value: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: each for name, each in value.items()}


def _put(value: Any, path: tuple[str | int, ...], slip: Callable[[Any], Any]) -> Any:
    if not path:
        return slip(value)
    copy = value.copy()
    copy[path[0]] = _put(value[path[0]], path[1:], slip)
    return copy
