"""Finds a call in a text, in any notation of calls; see `guard/injection/copied_call.py`."""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.guard.injection.text_search import WorkBudget

_CHARS_PER_STEP: Final = 16
_ESCAPES_PER_STEP: Final = 2
"""Characters and escapes that are decoded in one step of work."""
_TOKENS_PER_STEP: Final = 16
"""Tokens that are compared in one step of work."""
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_ESCAPED: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPES: Final = {"b": " ", "f": " ", "n": "\n", "r": "\r", "t": "\t"}
_MAX_JSON_NESTING: Final = 3
"""How often JSON is nested in strings of JSON."""
_MAX_GAP_TOKENS: Final = 48
"""Tokens between two parts of a call; the longest gap in any format has 31."""
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
_MAX_FREE_WORDS: Final = 12
"""After these words comes an id of any kind, and in a tag any word; so many words are skipped."""
_CALL_INDEX: Final = re.compile(r"[0-9]{1,3}")
"""The index of a call among several."""
_NAME_KEYS: Final = frozenset(("name", "tool", "function", "tool_name", "method"))
"""Words before a name that follows its arguments."""
_MARKS_BEFORE: Final = frozenset("\"'`<>=:([{,|")
_MARKS_AFTER: Final = frozenset("\"'`<>)]},|;")
"""Marks around a complete value."""
_LITERALS: Final[Mapping[str, frozenset[str]]] = {
    "true": frozenset(("true", "True")),
    "false": frozenset(("false", "False")),
    "null": frozenset(("null", "None")),
}

Tokens: TypeAlias = list[str]


class _Tokens(NamedTuple):
    """A string, or a number with the digits as written."""

    tokens: Tokens


class _Object(NamedTuple):
    """The members of an object, in any order."""

    parts: "list[Member]"


class _Array(NamedTuple):
    """The items of an array, in their order."""

    items: "list[_Value]"


class _Literal(NamedTuple):
    """True, false or null, in each notation."""

    spellings: frozenset[str]


_Value: TypeAlias = _Tokens | _Object | _Array | _Literal


class Member(NamedTuple):
    """The name of the tool, or the name and value of an argument."""

    name: Tokens
    value: _Value | None
    """None for the name of the tool."""


def decoded_forms(text: str, work: WorkBudget) -> Iterator[str]:
    """Yields the text, and the text decoded as a JSON string, repeatedly."""
    work.spend(len(text) // _CHARS_PER_STEP + text.count("&") // _ESCAPES_PER_STEP)
    text = html.unescape(text)
    yield text
    for _ in range(_MAX_JSON_NESTING):
        if "\\" not in text:
            return
        work.spend(len(text) // _CHARS_PER_STEP + text.count("\\") // _ESCAPES_PER_STEP)
        text = _ESCAPED.sub(_unescape, text)
        yield text


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])


def tokens_of(text: str) -> Tokens:
    """Splits a text into words and marks."""
    return _TOKEN.findall(html.unescape(text))


def members(value: Mapping[str, Any]) -> list[Member]:
    """Returns the members of the arguments, or of an object in them."""
    return [Member(tokens_of(name), _value(inner)) for name, inner in value.items()]


def _value(value: object) -> _Value:
    match value:
        case dict():
            return _Object(members(value))
        case list():
            return _Array([_value(each) for each in value])
        case str():
            return _Tokens(tokens_of(value))
        case _:
            return _Literal(_LITERALS[json.dumps(value)])


def tokens_in(value: _Value | Member | None) -> Iterator[Tokens]:
    """Yields all names and texts in a value."""
    match value:
        case Member(name, inner):
            yield name
            yield from tokens_in(inner)
        case _Object(all) | _Array(all):
            for each in all:
                yield from tokens_in(each)
        case _Tokens(tokens):
            yield tokens
        case _:
            pass


class CallSearch:
    """Searches one text for calls."""

    def __init__(self, text: str, work: WorkBudget) -> None:
        self._tokens = tokens = _TOKEN.findall(text)
        self._work = work
        work.spend(len(tokens) // 4)  # for counting and going through them

    def contains(self, parts: Sequence[Member], longest: Set[str]) -> bool:
        """Returns whether all parts are next to each other somewhere in the text, in any order.

        Args:
            parts: The parts of the call; the first is the tool's name.
            longest: All tokens of the parts.
        """
        return any(self._match_all(parts, start) >= 0 for start in self._starts(parts, longest))

    def _starts(self, parts: Sequence[Member], longest: Set[str]) -> Iterator[int]:
        """Positions at which the call can begin: a name near the rarest of its words, or before it if the name comes
        last.
        """
        tokens = self._tokens
        begins = {part.name[0] for part in parts if part.name}
        reach, before = len(longest) * (1 + _MAX_GAP_TOKENS), 0
        for at in self._positions_near(longest, reach):
            if self._match_tokens(parts[0].name, at) >= 0:
                yield at
                if not _NAME_KEYS.isdisjoint(tokens[max(0, at - 5) : at]):
                    yield from (start for start in range(max(before, at - reach), at) if tokens[start] in begins)
                    before = at

    def _positions_near(self, longest: Iterable[str], reach: int) -> Iterator[int]:
        """The positions within reach of the rarest of these words, each once."""
        tokens = self._tokens
        counted = Counter(tokens)
        rarest = min(longest, key=lambda word: (counted[word], word))
        searched = 0
        for rare in (at for at, token in enumerate(tokens) if token == rarest):
            yield from range(max(searched, rare - reach), min(rare + reach, len(tokens)))
            searched = max(searched, rare + reach)

    def _match_all(self, parts: Sequence[Member], at: int) -> int:
        """The end of these parts, the first of which begins at `at`; -1 if they are not there."""
        left = list(parts)
        while left:
            matched = next(
                (
                    (index, end)
                    for place in self._reachable(at)
                    for index, part in enumerate(left)
                    if (end := self._match_part(part, place)) >= 0
                ),
                None,
            )
            if matched is None:
                return -1
            del left[matched[0]]
            at = matched[1]
        return at

    def _reachable(self, at: int) -> Iterator[int]:
        """This position and the following ones, as long as only tokens are skipped that can be between two parts of a
        call.
        """
        tokens = self._tokens
        free = 0  # words of any kind that can still be skipped
        for place in range(at, min(at + _MAX_GAP_TOKENS, len(tokens) + 1)):
            self._work.spend()
            yield place
            token = tokens[place] if place < len(tokens) else "."
            if token == ">":
                free = 0
            elif token == "<" or token in _IDS:
                free = _MAX_FREE_WORDS
            elif (token.isalnum() or "_" in token) and token not in _FRAMING and not _CALL_INDEX.fullmatch(token):
                free -= 1
                if free < 0:
                    return

    def _match_part(self, part: Member, at: int) -> int:
        """The end of this part if it begins at `at`, else -1."""
        end = self._match_tokens(part.name, at)
        return end if end < 0 or part.value is None else self._match_value_after(part.value, end)

    def _match_value_after(self, value: _Value, at: int) -> int:
        """The end of this value if it is the next part after `at`, else -1."""
        return next((end for place in self._reachable(at) if (end := self._match_value(value, place)) >= 0), -1)

    def _match_value(self, value: _Value, at: int) -> int:
        tokens = self._tokens
        match value:
            case _Object(parts):
                return self._match_all(parts, at)
            case _Array(items):
                for each in items:
                    at = self._match_value_after(each, at)
                    if at < 0:
                        break
                return at
            case _Tokens(value_tokens):
                end = self._match_tokens(value_tokens, at)
                is_complete = end < 0 or (
                    tokens[at - 1] in _MARKS_BEFORE and (end == len(tokens) or tokens[end] in _MARKS_AFTER)
                )
                return end if is_complete else -1
            case _Literal(literal):
                return at + 1 if at < len(tokens) and tokens[at] in literal else -1

    def _match_tokens(self, tokens: Tokens, at: int) -> int:
        self._work.spend(1 + len(tokens) // _TOKENS_PER_STEP)
        return at + len(tokens) if self._tokens[at : at + len(tokens)] == tokens else -1
