"""Describes what is wrong with a call's arguments, in sentences that a small model can act on.

    days: expected an integer, got "three"
    unit: expected one of "celsius", "fahrenheit", got "Celsius"
    "city" is missing
    user: "nmae" is not known here; known: "name", "age"

The path comes first. Values are truncated, so a message is short for any arguments. The kinds are named after keywords
of JSON Schema 2020-12 (json-schema.org/draft/2020-12/json-schema-validation); keywords with the same meaning share a
kind.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

ViolationKind: TypeAlias = Literal[
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
"""`range`, `length`, `items` and `properties` are limits: of numbers, of texts, of the number of items and members."""

MAX_VALUE_CHARS: Final = 100
"""Length of a quoted value; enough to recognize it."""
MAX_LISTED: Final = 12
"""Values or names that are listed; a model looks at the first ones, and some schemas have thousands."""


class Violation(NamedTuple):
    """One reason why a value does not match its schema."""

    path: tuple[str | int, ...]
    """Names of members and positions of items, from the arguments down."""
    kind: ViolationKind
    message: str
    """A short sentence that begins with the path."""
    expected: Any = None
    """Depends on `kind`: the types, the values of an enum or the unexpected names as a tuple, the value of a const, the
    name that is missing, a limit, the pattern or the format; else None."""
    branches: "tuple[tuple[Violation, ...], ...]" = ()
    """Of `any_of` and `one_of`: the violations of each branch, in the schema's order."""
    schema: Mapping[str, Any] = {}
    """The part of the schema that is violated; empty if it is not known."""


_TYPE_NAMES: Final[Mapping[str, str]] = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_FORMAT_EXAMPLES: Final[Mapping[str, str]] = {
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
"""An example of each format that tools use (RFC 3339, 5321, 1123, 2673, 4291, 3986, 4122); models follow an example
best."""
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_MAX_MEMBERS: Final = 4
"""Members of an object or array that are quoted."""


def quote_value(value: Any, limit_chars: int = MAX_VALUE_CHARS) -> str:
    """Returns the value as JSON, truncated to `limit_chars`, without nested values."""
    match value:
        case str():
            text = json.dumps(value[:limit_chars], ensure_ascii=False)
        case dict():
            few = [f"{quote_value(name)}: {_quote_leaf(value[name])}" for name in islice(value, _MAX_MEMBERS)]
            text = _join_truncated("{", few, len(value), "}")
        case list() | tuple():
            text = _join_truncated("[", [_quote_leaf(each) for each in value[:_MAX_MEMBERS]], len(value), "]")
        case _:
            text = _quote_number(value)
    return text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"


def _quote_leaf(value: Any) -> str:
    if isinstance(value, dict | list):
        return ("{…}" if isinstance(value, dict) else "[…]") if value else json.dumps(value)
    return quote_value(value)


def _join_truncated(opening: str, few: list[str], count: int, closing: str) -> str:
    return opening + ", ".join([*few, "…"] if count > len(few) else few) + closing


def _quote_number(value: Any) -> str:
    try:
        return json.dumps(value)
    except ValueError:  # Python refuses to write a number of thousands of digits
        return "a number of thousands of digits"


def quote_list(values: Iterable[Any]) -> str:
    """Returns the first values in a row: `"a", "b", 3`."""
    first = [quote_value(each) for each in islice(values, MAX_LISTED + 1)]
    return ", ".join(first[:MAX_LISTED]) + (", …" if len(first) > MAX_LISTED else "")


def format_path(path: Sequence[str | int]) -> str:
    """Returns a path as in code: `items[0].name`; empty for the whole value."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _IDENTIFIER.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{quote_value(part)}]"
    return text


def describe_types(types: Iterable[str]) -> str:
    """Returns the types in prose: `an integer or null`."""
    return " or ".join(_TYPE_NAMES.get(each, each) for each in types)


def describe_limit(word: str, limit: Any) -> str:
    """Returns what a keyword for a limit requires: `at least 3`."""
    how, unit = _LIMIT_PHRASES[word]
    return f"{how} {quote_value(limit)}{unit}"


_LIMIT_PHRASES: Final[Mapping[str, tuple[str, str]]] = {
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


def describe_format(name: str) -> str:
    """Returns what a format requires, with an example if there is one."""
    return f"the format {quote_value(name)}" + (
        f" such as {_FORMAT_EXAMPLES[name]}" if name in _FORMAT_EXAMPLES else ""
    )


def with_path(path: Sequence[str | int], message: str) -> str:
    """Returns the message with its path in front."""
    at = format_path(path)
    return f"{at}: {message}" if at else message
