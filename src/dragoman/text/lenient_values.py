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

_NOTHING: Final = ('""', "false")


def string(found: Cursor | None) -> str:
    """Returns a string, or a number as text; empty for any other value."""
    if found is None:
        return ""
    return found.string() if found.kind == "string" else found.text if found.kind == "number" else ""


def string_or_json(found: Cursor | None) -> str:
    """Returns a string, or the JSON of any other value; empty if absent."""
    return "" if found is None else found.string() if found.kind == "string" else found.text


def integer(found: Cursor | None) -> int | None:
    """Returns a whole number, limited to ±`MAX_COUNT`, also from a string or a fraction; None for any other value."""
    try:
        number = float(string(found))
    except (ValueError, RequestError):
        return None
    if math.isnan(number):
        return None
    return int(max(-MAX_COUNT, min(number, MAX_COUNT)))


def token_count(found: Cursor | None) -> int | None:
    """Returns a number of tokens, limited to 0..`MAX_COUNT`; None if the value is not a number."""
    number = integer(found)
    return None if number is None else max(0, number)


def fields(found: Cursor | None) -> Fields | None:
    """Returns the members of an object; None for any other value."""
    return found.fields() if found is not None and found.kind == "object" else None


def items(found: Cursor | None) -> list[Cursor]:
    """Returns the items of an array, without nulls, or a single value as one item."""
    if found is None:
        return []
    return [item for item in found.items() if item.kind != "null"] if found.kind == "array" else [found]


def objects(found: Cursor | None) -> list[Fields]:
    """Returns the objects of an array, or a single object. Nulls, `false` and empty strings are skipped.

    Raises:
        RequestError: An item has another type.
    """
    if found is not None and found.kind not in ("array", "object") and found.text not in _NOTHING:
        raise found.wrong("array")
    return [item.fields() for item in items(found) if item.text not in _NOTHING]


def count_at(counts: Fields, *path: str) -> int:
    """Returns the count at this path of nested objects without removing anything; 0 if there is none."""
    *parents, name = path
    for each in parents:
        inner = fields(counts.get(each))
        if inner is None:
            return 0
        counts = inner
    return token_count(counts.get(name)) or 0
