r"""The arguments of a call where something else than their object comes: nothing, or the object wrapped up.

    null    ""                          {}
    "{\"city\": \"Paris\"}"             the object in a JSON string, as OpenAI's API has it, also twice
    "{"city": "Paris"}"                 the same, by a model that forgot to escape it
    ```json {"city": "Paris"} ```       the object in a code fence

`unwrapped` takes the text of such arguments, whole; `read_wrapped` reads it.
"""

import json
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from dragoman.core.messages import JsonText as Json
from dragoman.text.scanner import Leaf, Scanner, nothing
from dragoman.text.tolerant_json import MendedJson

LEVELS_LIMIT: Final = 3
"""How many strings and fences may stand around the object."""
FIRST: Final = ('"', "'", "`")
"""What wrapped arguments begin with."""
_NO_OBJECT: Final = "expected the arguments as an object"
_GAP_CHARS: Final = 64
_FENCE: Final = re.compile(r"```\w*")
_UNESCAPED: Final = re.compile(r"\"\s*(\{\s*\".*\})\s*\"", re.DOTALL)
_LANGUAGE: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


class Unwrapped(NamedTuple):
    """What became of them."""

    arguments: Json
    """The object."""
    slips: tuple[str, ...] = ()
    """What was mended in them (text/json_repairs.py)."""
    problem: str = ""
    """Why there is no object, or empty."""


def unwrapped(text: str, mends: Collection[str]) -> Unwrapped:
    """The object that these arguments hold; none of the wrappings has been taken off."""
    slips: dict[str, None] = {}
    for _ in range(LEVELS_LIMIT + 1):
        text = text.strip()
        if not text or text == "null":
            return Unwrapped("{}", tuple(slips))
        if "fences" in mends and (fence := _FENCE.match(text)):
            slips["fences"] = None
            text = text[fence.end() :].removesuffix("```").strip()
        elif "doubled" in mends and (unescaped := _UNESCAPED.fullmatch(text)):
            slips["doubled"] = None
            text = unescaped[1]
        value = MendedJson(mends)
        if value.feed(text, 0, True) < len(text) or not value.done:
            break
        slips |= value.slips
        text = value.take()
        if text == "null" or text.startswith("{"):
            return Unwrapped("{}" if text == "null" else text, tuple(slips))
        if not text.startswith('"') or (text != '""' and "doubled" not in mends):
            break
        if text := json.loads(text).strip():
            slips["doubled"] = None
    return Unwrapped("", (), _NO_OBJECT)


def read_wrapped(s: Scanner) -> Leaf[Unwrapped]:
    """Read them, the scanner standing before the first of their characters, which is no `{`."""
    first = yield from s.peek()
    pieces: list[str] = []
    if first == "`" and "fences" in s.mends and (yield from s.literal("```")):
        yield from s.run(_LANGUAGE, nothing)
        return (yield from _closed(s, "```", "fences"))
    if first == '"' and "doubled" in s.mends and (yield from _is_unescaped(s)):
        yield from s.literal('"')
        return (yield from _closed(s, '"', "doubled"))
    problem = yield from s.json_value(pieces.append)
    found = Unwrapped("", (), problem) if problem else unwrapped("".join(pieces), s.mends)
    s.slips.update(dict.fromkeys(found.slips))
    return found


def _closed(s: Scanner, closer: str, slip: str) -> Leaf[Unwrapped]:
    """The object, and what closes what stands around it."""
    if (yield from s.peek(after_space=True)) != "{":
        return Unwrapped("", (), _NO_OBJECT)
    yield from s.space()
    pieces: list[str] = []
    problem = yield from s.json_value(pieces.append)
    if not problem and not (yield from s.literal(closer, after_space=True)):
        problem = f"expected {closer}"
    s.slips[slip] = None
    return Unwrapped("" if problem else "".join(pieces), (), problem)


def _is_unescaped(s: Scanner) -> Leaf[bool]:
    """Whether a quote, a brace and another quote come: no JSON string begins an object that way."""
    for count in range(2, _GAP_CHARS):
        begun = yield from s.peek(count)
        if len(begun) < count:
            return False
        last = begun[-1]
        if last not in " \t\r\n":
            braced = begun[1:-1].strip() == "{"
            if last != ('"' if braced else "{"):
                return False
            if braced:
                return True
    return False
