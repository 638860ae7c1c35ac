"""Values of an upstream's JSON that are a little off their API's types, read as what they mean.

    {"index": "0", "id": 17, "usage": {"prompt_tokens": "12", "completion_tokens": -1}}

A request is held to its API's types, as its author reads the error. An answer is not: its reader can do nothing about
the server, and what it said is lost with the error.
"""

import math
from typing import Final

from dragoman.core.errors import RequestError
from dragoman.text.json_cursor import Cursor, Fields

MOST: Final = 2**53
"""The largest count that is read: every JSON parser has it exactly."""

_NOTHING: Final = ('""', "false")


def word(found: Cursor | None) -> str:
    """A string, or a number as text; empty for anything else."""
    if found is None:
        return ""
    return found.string() if found.kind == "string" else found.text if found.kind == "number" else ""


def text(found: Cursor | None) -> str:
    """A string, or the JSON of whatever stands in its place."""
    return "" if found is None else found.string() if found.kind == "string" else found.text


def integer(found: Cursor | None) -> int | None:
    """A whole number, also as a string or with a fraction, from -`MOST` to `MOST`; None for anything else."""
    try:
        number = float(word(found))
    except (ValueError, RequestError):
        return None
    if math.isnan(number):
        return None
    return int(max(-MOST, min(number, MOST)))


def count(found: Cursor | None) -> int | None:
    """A number of tokens, from 0 to `MOST`; None where there is no number."""
    number = integer(found)
    return None if number is None else max(0, number)


def fields(found: Cursor | None) -> Fields | None:
    """The members of an object; None for anything else."""
    return found.fields() if found is not None and found.kind == "object" else None


def items(found: Cursor | None) -> list[Cursor]:
    """The items of an array, or the one value in its place; nulls are none."""
    if found is None:
        return []
    return [item for item in found.items() if item.kind != "null"] if found.kind == "array" else [found]


def objects(found: Cursor | None) -> list[Fields]:
    """The objects of an array, or the one in its place; nulls, `false` and empty strings are none.

    Raises: RequestError: there is something else among them.
    """
    if found is not None and found.kind not in ("array", "object") and found.text not in _NOTHING:
        raise found.wrong("array")
    return [item.fields() for item in items(found) if item.text not in _NOTHING]


def details(counts: Fields, *path: str) -> int:
    """The count at this path of objects, 0 where there is none; each object on the way stays."""
    *above, name = path
    for each in above:
        inner = fields(counts.peek(each))
        if inner is None:
            return 0
        counts = inner
    return count(counts.peek(name)) or 0
