r"""Arguments of a call that are not a plain object: null, empty, or an object that is wrapped.

    null    ""                          {}
    "{\"city\": \"Paris\"}"             the object in a JSON string, as in OpenAI's API, or in two nested ones
    "{"city": "Paris"}"                 the object in quotes, by a model that forgot to escape it
    ```json {"city": "Paris"} ```       the object in a code fence

`unwrap_arguments` converts a complete text; `read_wrapped_arguments` reads from a scanner.
"""

import json
import re
from collections.abc import Collection
from typing import Final, NamedTuple

from dragoman.core.messages import JsonText as Json
from dragoman.text.scanner import Parser, Scanner, discard
from dragoman.text.tolerant_json import TolerantJsonStream

LEVELS_LIMIT: Final = 3
"""Maximum number of nested strings and fences around the object."""
FIRST: Final = ('"', "'", "`")
"""The first characters of wrapped arguments."""
_NO_OBJECT: Final = "expected the arguments as an object"
_GAP_CHARS: Final = 64
_FENCE: Final = re.compile(r"```\w*")
_UNESCAPED: Final = re.compile(r"\"\s*(\{\s*\".*\})\s*\"", re.DOTALL)
_LANGUAGE: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"


class UnwrappedArguments(NamedTuple):
    """Result of unwrapping."""

    arguments: Json
    """The object's JSON."""
    repairs: tuple[str, ...] = ()
    """Names of the applied repairs (text/json_repairs.py)."""
    problem: str = ""
    """Why the arguments are not an object; empty on success."""


def unwrap_arguments(text: str, enabled_repairs: Collection[str]) -> UnwrappedArguments:
    """Returns the object in these arguments.

    Args:
        text: The complete arguments, as the model wrote them.
        enabled_repairs: Names of the repairs to apply.
    """
    repairs: dict[str, None] = {}
    for _ in range(LEVELS_LIMIT + 1):
        text = text.strip()
        if not text or text == "null":
            return UnwrappedArguments("{}", tuple(repairs))
        if "fences" in enabled_repairs and (fence := _FENCE.match(text)):
            repairs["fences"] = None
            text = text[fence.end() :].removesuffix("```").strip()
        elif "doubled" in enabled_repairs and (unescaped := _UNESCAPED.fullmatch(text)):
            repairs["doubled"] = None
            text = unescaped[1]
        value = TolerantJsonStream(enabled_repairs)
        if value.feed(text, 0, True) < len(text) or not value.done:
            break
        repairs |= value.repairs
        text = value.drain()
        if text == "null" or text.startswith("{"):
            return UnwrappedArguments("{}" if text == "null" else text, tuple(repairs))
        if not text.startswith('"') or (text != '""' and "doubled" not in enabled_repairs):
            break
        if text := json.loads(text).strip():
            repairs["doubled"] = None
    return UnwrappedArguments("", (), _NO_OBJECT)


def read_wrapped_arguments(s: Scanner) -> Parser[UnwrappedArguments]:
    """Reads wrapped arguments. The scanner is at their first character, which is not `{`."""
    first = yield from s.peek()
    pieces: list[str] = []
    if first == "`" and "fences" in s.enabled_repairs and (yield from s.literal("```")):
        yield from s.run(_LANGUAGE, discard)
        return (yield from _read_until_closer(s, "```", "fences"))
    if first == '"' and "doubled" in s.enabled_repairs and (yield from _is_unescaped(s)):
        yield from s.literal('"')
        return (yield from _read_until_closer(s, '"', "doubled"))
    problem = yield from s.json_value(pieces.append)
    unwrapped = UnwrappedArguments("", (), problem) if problem else unwrap_arguments("".join(pieces), s.enabled_repairs)
    s.repairs.update(dict.fromkeys(unwrapped.repairs))
    return unwrapped


def _read_until_closer(s: Scanner, closer: str, repair: str) -> Parser[UnwrappedArguments]:
    """Reads the object and the closer of its wrapper."""
    if (yield from s.peek(after_space=True)) != "{":
        return UnwrappedArguments("", (), _NO_OBJECT)
    yield from s.skip_space()
    pieces: list[str] = []
    problem = yield from s.json_value(pieces.append)
    if not problem and not (yield from s.literal(closer, after_space=True)):
        problem = f"expected {closer}"
    s.repairs[repair] = None
    return UnwrappedArguments("" if problem else "".join(pieces), (), problem)


def _is_unescaped(s: Scanner) -> Parser[bool]:
    """Returns whether a quote, a brace and another quote are next: a valid string cannot start so."""
    for count in range(2, _GAP_CHARS):
        prefix = yield from s.peek(count)
        if len(prefix) < count:
            return False
        last = prefix[-1]
        if last not in " \t\r\n":
            braced = prefix[1:-1].strip() == "{"
            if last != ('"' if braced else "{"):
                return False
            if braced:
                return True
    return False
