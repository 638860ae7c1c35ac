"""Lenient readers for values of an upstream's JSON that deviate slightly from the types of their API.

    {"index": "0", "id": 17, "usage": {"prompt_tokens": "12", "completion_tokens": -1}}

Requests are validated strictly, because their author can read the error. Responses are read leniently: the client
cannot fix the upstream server, and an error would discard the content.
"""

import math
from typing import Final

from dragoman.core.errors import RequestError
from dragoman.text.json_cursor import Cursor, Fields

MAX_COUNT: Final = 2**53
"""The largest count that is returned: every JSON parser represents it exactly."""

EMPTY_VALUES: Final = (b"null", b"false", b"{}", b"[]", b'""')
"""JSON values that request nothing."""
_NOTHING: Final = ('""', "false")


def string(value: Cursor | None) -> str:
    """Returns a string, or a number as text; empty for any other value."""
    if value is None:
        return ""
    return value.string() if value.kind == "string" else value.text if value.kind == "number" else ""


def string_or_json(value: Cursor | None) -> str:
    """Returns a string, or the JSON of any other value; empty if absent."""
    return "" if value is None else value.string() if value.kind == "string" else value.text


def integer(value: Cursor | None) -> int | None:
    """Returns a whole number, limited to ±`MAX_COUNT`, also from a string or a fraction; None for any other value."""
    try:
        number = float(string(value))
    except (ValueError, RequestError):
        return None
    if math.isnan(number):
        return None
    return int(max(-MAX_COUNT, min(number, MAX_COUNT)))


def token_count(value: Cursor | None) -> int | None:
    """Returns a number of tokens, limited to 0..`MAX_COUNT`; None if the value is not a number."""
    number = integer(value)
    return None if number is None else max(0, number)


def fields(value: Cursor | None) -> Fields | None:
    """Returns the members of an object; None for any other value."""
    return value.fields() if value is not None and value.kind == "object" else None


def items(value: Cursor | None) -> list[Cursor]:
    """Returns the items of an array, without nulls, or a single value as one item."""
    if value is None:
        return []
    return [item for item in value.items() if item.kind != "null"] if value.kind == "array" else [value]


def objects(value: Cursor | None) -> list[Fields]:
    """Returns the objects of an array, or a single object. Nulls, `false` and empty strings are skipped.

    Raises:
        RequestError: An item has another type.
    """
    if value is not None and value.kind not in ("array", "object") and value.text not in _NOTHING:
        raise value.wrong("array")
    return [item.fields() for item in items(value) if item.text not in _NOTHING]


def count_at(counts: Fields, *path: str) -> int:
    """Returns the count at this path of nested objects without removing anything; 0 if there is none."""
    *parents, name = path
    for each in parents:
        inner = fields(counts.get(each))
        if inner is None:
            return 0
        counts = inner
    return token_count(counts.get(name)) or 0
