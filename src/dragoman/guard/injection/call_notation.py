"""Whether a call stands in a text, in whatever notation of calls: see `guard/injection/copied_call.py`."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.guard.injection.text_search import Work

_CHARS_A_STEP: Final = 16
_ESCAPES_A_STEP: Final = 2
"""Of a text that is unwrapped."""
_TOKENS_A_STEP: Final = 16
"""That are compared."""
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_ESCAPED: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPES: Final = {"b": " ", "f": " ", "n": "\n", "r": "\r", "t": "\t"}
_UNWRAPPED: Final = 3
"""As often as JSON may stand in a string of JSON."""
_SKIPPED: Final = 48
"""Tokens between two parts of a call; the longest in any format of ours has 31."""
_FRAMING: Final = frozenset(
    (
        *("name", "arguments", "argument", "args", "arg", "parameters", "parameter", "params", "param", "kwargs"),
        *("function", "functions", "function_call", "call", "calls", "tool", "tools", "tool_call", "tool_calls"),
        *("tool_name", "tool_input", "tool_use", "input", "inputs", "invoke", "key", "value", "arg_key", "arg_value"),
        *("arg_type", "type", "index", "string", "number", "integer", "boolean", "null", "object", "array", "dict"),
        *("list", "raw", "json", "true", "false", "begin", "end", "sep", "id", "call_id", "tool_call_id"),
        *("ARGS", "CALL_ID", "TOOL_CALLS", "analysis", "commentary", "xml"),
    )
)
"""Words between a call's name and its arguments in notations of calls."""
_IDS: Final = frozenset(("id", "call_id", "tool_call_id", "CALL_ID"))
_FREE: Final = 12
"""Behind these stands an id, which is of any kind, and in a tag any word; so many are passed over."""
_NUMBER: Final = re.compile(r"[0-9]{1,3}")
"""Which call of several it is."""
_NAMING: Final = frozenset(("name", "tool", "function", "tool_name", "method"))
"""Before a name that stands behind its arguments."""
_BEFORE: Final = frozenset("\"'`<>=:([{,|")
_BEHIND: Final = frozenset("\"'`<>)]},|;")
"""What stands around a whole value."""
_LITERALS: Final[Mapping[str, frozenset[str]]] = {
    "true": frozenset(("true", "True")),
    "false": frozenset(("false", "False")),
    "null": frozenset(("null", "None")),
}

Tokens: TypeAlias = list[str]


class _Said(NamedTuple):
    """A string, or a number as it was written."""

    tokens: Tokens


class _Object(NamedTuple):
    """Its members, in any order."""

    parts: "list[Piece]"


class _Array(NamedTuple):
    """Its items, in their order."""

    items: "list[_Value]"


class _Literal(NamedTuple):
    """True, false or null, in each spelling."""

    words: frozenset[str]


_Value: TypeAlias = _Said | _Object | _Array | _Literal


class Piece(NamedTuple):
    """The name of the tool, or of an argument, and then its value."""

    name: Tokens
    value: _Value | None
    """Of an argument."""


def unwrapped(text: str, work: Work) -> Iterator[str]:
    """The text, and as it reads where it is JSON, or JSON in that."""
    work.do(len(text) // _CHARS_A_STEP + text.count("&") // _ESCAPES_A_STEP)
    text = html.unescape(text)
    yield text
    for _ in range(_UNWRAPPED):
        if "\\" not in text:
            return
        work.do(len(text) // _CHARS_A_STEP + text.count("\\") // _ESCAPES_A_STEP)
        text = _ESCAPED.sub(_unescaped, text)
        yield text


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _ESCAPES.get(found[2], found[2])


def tokens_of(text: str) -> Tokens:
    """Its words, and each mark between them."""
    return _TOKEN.findall(html.unescape(text))


def members(value: Mapping[str, Any]) -> list[Piece]:
    """The arguments, or an object in them."""
    return [Piece(tokens_of(name), _value(inner)) for name, inner in value.items()]


def _value(value: object) -> _Value:
    match value:
        case dict():
            return _Object(members(value))
        case list():
            return _Array([_value(each) for each in value])
        case str():
            return _Said(tokens_of(value))
        case _:
            return _Literal(_LITERALS[json.dumps(value)])


def said_in(value: _Value | Piece | None) -> Iterator[Tokens]:
    """All names and texts in it."""
    match value:
        case Piece(name, inner):
            yield name
            yield from said_in(inner)
        case _Object(all) | _Array(all):
            for each in all:
                yield from said_in(each)
        case _Said(tokens):
            yield tokens
        case _:
            pass


class Look:
    """Looks for calls in a text."""

    def __init__(self, text: str, work: Work) -> None:
        self._tokens = tokens = _TOKEN.findall(text)
        self._work = work
        work.do(len(tokens) // 4)  # counted, and gone through

    def stands(self, parts: Sequence[Piece], words: Set[str]) -> bool:
        """Whether all of these, the first of which is the tool's name, stand together somewhere, in any order.

        The words are all that they have.
        """
        return any(self._all(parts, start) >= 0 for start in self._starts(parts, words))

    def _starts(self, parts: Sequence[Piece], words: Set[str]) -> Iterator[int]:
        """Where it may begin: at a name near the rarest of its words, or before one where JSON has it last."""
        tokens = self._tokens
        begins = {part.name[0] for part in parts if part.name}
        reach, before = len(words) * (1 + _SKIPPED), 0
        for at in self._near(words, reach):
            if self._literal(parts[0].name, at) >= 0:
                yield at
                if not _NAMING.isdisjoint(tokens[max(0, at - 5) : at]):
                    yield from (start for start in range(max(before, at - reach), at) if tokens[start] in begins)
                    before = at

    def _near(self, words: Iterable[str], reach: int) -> Iterator[int]:
        """The places within reach of the rarest of these words, each once."""
        tokens = self._tokens
        counted = Counter(tokens)
        rarest = min(words, key=lambda word: (counted[word], word))
        seen = 0
        for rare in (at for at, token in enumerate(tokens) if token == rarest):
            yield from range(max(seen, rare - reach), min(rare + reach, len(tokens)))
            seen = max(seen, rare + reach)

    def _all(self, parts: Sequence[Piece], at: int) -> int:
        """Where these end, the first of which begins here; -1: they do not stand here."""
        left = list(parts)
        while left:
            found = next(
                (
                    (index, end)
                    for place in self._places(at)
                    for index, part in enumerate(left)
                    if (end := self._end(part, place)) >= 0
                ),
                None,
            )
            if found is None:
                return -1
            del left[found[0]]
            at = found[1]
        return at

    def _places(self, at: int) -> Iterator[int]:
        """Here, and on as far as there is nothing but what may stand between two parts of a call."""
        tokens = self._tokens
        free = 0  # words of any kind that may still come
        for place in range(at, min(at + _SKIPPED, len(tokens) + 1)):
            self._work.do()
            yield place
            token = tokens[place] if place < len(tokens) else "."
            if token == ">":
                free = 0
            elif token == "<" or token in _IDS:
                free = _FREE
            elif (token.isalnum() or "_" in token) and token not in _FRAMING and not _NUMBER.fullmatch(token):
                free -= 1
                if free < 0:
                    return

    def _end(self, part: Piece, at: int) -> int:
        """Where this part ends that begins here, or -1."""
        end = self._literal(part.name, at)
        return end if end < 0 or part.value is None else self._behind(part.value, end)

    def _behind(self, value: _Value, at: int) -> int:
        """Where this value ends, the next of what counts from here on; or -1."""
        return next((end for place in self._places(at) if (end := self._value_end(value, place)) >= 0), -1)

    def _value_end(self, value: _Value, at: int) -> int:
        tokens = self._tokens
        match value:
            case _Object(parts):
                return self._all(parts, at)
            case _Array(items):
                for each in items:
                    at = self._behind(each, at)
                    if at < 0:
                        break
                return at
            case _Said(said):
                end = self._literal(said, at)
                whole = end < 0 or (tokens[at - 1] in _BEFORE and (end == len(tokens) or tokens[end] in _BEHIND))
                return end if whole else -1
            case _Literal(words):
                return at + 1 if at < len(tokens) and tokens[at] in words else -1

    def _literal(self, wanted: Tokens, at: int) -> int:
        self._work.do(1 + len(wanted) // _TOKENS_A_STEP)
        return at + len(wanted) if self._tokens[at : at + len(wanted)] == wanted else -1
