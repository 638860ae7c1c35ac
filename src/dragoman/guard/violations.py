"""What is wrong with a call's arguments, in words that a small model can act on.

    days: expected an integer, got "three"
    unit: expected one of "celsius", "fahrenheit", got "Celsius"
    "city" is missing
    user: "nmae" is not known here; known: "name", "age"

The path comes first. Values are cut, so that a message is short whatever the arguments are. The kinds are the words of
JSON Schema 2020-12 (json-schema.org/draft/2020-12/json-schema-validation), those that say the same under one name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal[
    "type",
    "enum",
    "const",
    "required",
    "additional",
    "any_of",
    "one_of",
    "not",
    "range",
    "multiple_of",
    "length",
    "pattern",
    "format",
    "items",
    "unique",
    "contains",
    "properties",
    "names",
    "other",
]
"""`range`, `length`, `items` and `properties` are limits: of numbers, of texts, and of how many items and members."""

VALUE_CHARS: Final = 100
"""Of a value that is quoted; as much as tells a reader which one is meant."""
LISTED: Final = 12
"""Values or names that are listed; a model looks at the first ones, and a schema has thousands at times."""


class Problem(NamedTuple):
    """One thing that a value is not as its schema wants it."""

    path: tuple[str | int, ...]
    """Where it is: names of members and numbers of items, from the arguments down."""
    kind: Kind
    message: str
    """A short sentence, its path first."""
    expected: Any = None
    """By kind: the types, the values of an enum or the unexpected names as a tuple, the value of a const, the name that
    is missing, a limit, the pattern or the format; else None."""
    within: "tuple[tuple[Problem, ...], ...]" = ()
    """Of `any_of` and `one_of`: what is wrong with each branch, in the schema's order."""
    schema: Mapping[str, Any] = {}
    """The part of the schema that says so, where it is one that can be told."""


_A: Final[Mapping[str, str]] = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_SUCH_AS: Final[Mapping[str, str]] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:30:00Z",
    "time": "09:30:00Z",
    "duration": "P1DT2H",
    "email": "name@example.com",
    "hostname": "www.example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/page",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
"""One value of each format that tools use (RFC 3339, 5321, 1123, 2673, 4291, 3986, 4122): an example teaches best."""
_WORD = re.compile(r"[^\W\d]\w*")
_MEMBERS: Final = 4
"""Of an object or array that are shown."""


def shown(value: Any, limit_chars: int = VALUE_CHARS) -> str:
    """The value as JSON, its end cut off where it is long, and what is nested in it left out."""
    match value:
        case str():
            text = json.dumps(value[:limit_chars], ensure_ascii=False)
        case dict():
            few = [f"{shown(name)}: {_leaf(value[name])}" for name in islice(value, _MEMBERS)]
            text = _cut_list("{", few, len(value), "}")
        case list() | tuple():
            text = _cut_list("[", [_leaf(each) for each in value[:_MEMBERS]], len(value), "]")
        case _:
            text = _number(value)
    return text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"


def _leaf(value: Any) -> str:
    if isinstance(value, dict | list):
        return ("{…}" if isinstance(value, dict) else "[…]") if value else json.dumps(value)
    return shown(value)


def _cut_list(opening: str, few: list[str], of: int, closing: str) -> str:
    return opening + ", ".join([*few, "…"] if of > len(few) else few) + closing


def _number(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"


def listed(values: Iterable[Any]) -> str:
    """Some values in a row: `"a", "b", 3`."""
    first = [shown(each) for each in islice(values, LISTED + 1)]
    return ", ".join(first[:LISTED]) + (", …" if len(first) > LISTED else "")


def place(path: Sequence[str | int]) -> str:
    """A path as it is written in code: `items[0].name`; empty for the whole."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _WORD.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def types_said(types: Iterable[str]) -> str:
    """`an integer or null`."""
    return " or ".join(_A.get(each, each) for each in types)


def limited(word: str, limit: Any) -> str:
    """What a word of JSON Schema that sets a limit asks for: `at least 3`."""
    how, unit = _LIMITS[word]
    return f"{how} {shown(limit)}{unit}"


_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "minimum": ("at least", ""),
    "maximum": ("at most", ""),
    "exclusiveMinimum": ("more than", ""),
    "exclusiveMaximum": ("less than", ""),
    "multipleOf": ("a multiple of", ""),
    "minLength": ("at least", " characters"),
    "maxLength": ("at most", " characters"),
    "minItems": ("at least", " items"),
    "maxItems": ("at most", " items"),
    "minProperties": ("at least", " members"),
    "maxProperties": ("at most", " members"),
}


def formatted(name: str) -> str:
    """What a format asks for, with an example where there is one."""
    return f"the format {shown(name)}" + (f" such as {_SUCH_AS[name]}" if name in _SUCH_AS else "")


def sentence(path: Sequence[str | int], words: str) -> str:
    """A message with its path in front."""
    at = place(path)
    return f"{at}: {words}" if at else words
