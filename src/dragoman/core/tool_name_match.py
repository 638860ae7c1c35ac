"""Matches a tool name that a model wrote to an offered tool.

    ToolNames(["get_weather", "mcp__files__read"]).resolve("functions.Get_Weather")     ("get_weather", "match_case")

Steps, in this order: the exact name; without a prefix that models add, or with the MCP server prefix that they omit;
ignoring case and separators between words; with two letters of a long word swapped, or one doubled or not doubled. A
different, missing or additional letter does not match, since it may be another word (`charge`, `change`; `contact`,
`contract`; `block`, `lock`). Different numbers do not match (`host12`, `host21`), nor does another MCP server
(`mcp__staging__drop`, `mcp__production__drop`). A step counts only if it leads to exactly one tool, and no later step
is tried after one that leads to several: an ambiguous name matches nothing. docs/guard.md uses the same names of steps.

With thousands of tools, comparing with each takes a tenth of a second, so tools are indexed once per step and results
are cached.

Source: `functions.` is OpenAI's namespace of tools (https://cookbook.openai.com/articles/openai-harmony), `default_api`
Gemini's; `mcp__SERVER__TOOL` is how Claude Code calls tools of MCP servers (https://code.claude.com/docs/en/mcp;
2026-11).
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

STEPS: Final = ("match_prefix", "match_case", "match_typo")
"""Ways in which a name may differ from the tool's name, in the order in which they are tried."""
_PREFIXES: Final = re.compile(r"(?:functions?|tools?|default_api|mcp__.+?__)[.:/]?")
_OF_SERVER: Final = re.compile(r"mcp__.+?__(.+)")
_MARKS: Final = re.compile(r"(?<=[^\W\d_])[\s_./:-]+(?=[^\W\d_])|(?<=[^\W\d_])[\s_]+(?=\d)|(?<=\d)[\s_]+(?=[^\W\d_])")
"""Separators between words; a character before or between digits may be a sign or a decimal point."""
_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SIMPLE: Final = re.compile(r"[\w\s./:-]*", re.ASCII)
_NUMBERS: Final = re.compile(r"[-.]?\d+", re.ASCII)
_LONG_WORD: Final = 7
"""Minimum letters of a word that may contain an error: `diner` and `dinner`, `trial` and `trail` differ in meaning."""
_EXACT_FIRST, _EXACT_LAST = 3, 2
"""Letters that must be correct at the beginning and at the end, as in `prefect` and `perfect`."""
_MAX_NAME_CHARS: Final = 128
"""Maximum characters of a name that is matched."""
_NAME: Final = re.compile(r"[^\n\r<>]*\w[^\n\r<>]*")
_MAX_CACHED: Final = 256
"""Maximum cached names: a response may contain thousands of different ones."""


def is_name(text: str) -> bool:
    """Returns whether the text can be a tool name: one line with a letter or digit and without tags."""
    return bool(_NAME.fullmatch(text))


class NameMatch(NamedTuple):
    """A matched tool."""

    name: str
    step: str
    """The step that matched; "" for an exact match."""


class ToolNames:
    """Names of the offered tools."""

    def __init__(self, names: Iterable[str], steps: Collection[str] = STEPS) -> None:
        """Creates an index of `names`; only the given `steps` of `STEPS` are used."""
        self._names = frozenset(names)
        self._steps = frozenset(steps)
        self._resolved: dict[str, NameMatch | None] = {}

    def resolve(self, written: str) -> NameMatch | None:
        """Returns the matching tool; None if there is no unique match."""
        if written in self._names:
            return NameMatch(written, "")
        if not written or len(written) > _MAX_NAME_CHARS:
            return None
        if written in self._resolved:
            return self._resolved[written]
        match = self._sought(written)
        if len(self._resolved) < _MAX_CACHED:
            self._resolved[written] = match
        return match

    def _sought(self, written: str) -> NameMatch | None:
        for step in (each for each in STEPS if each in self._steps):
            if matches := _MATCHERS[step](written, self._names):
                return NameMatch(matches.pop(), step) if len(matches) == 1 else None
        return None


def _by_prefix(written: str, names: frozenset[str]) -> set[str]:
    if (bare := _without_prefix(written)) in names:
        return {bare}
    if written.startswith("mcp__"):
        return set()
    return {name for each in {written, bare} for name in _names_by_key(_without_server, names).get(each, ())}


def _by_case(written: str, names: frozenset[str]) -> set[str]:
    keys = {normalize_name(written), normalize_name(_without_prefix(written))}
    return {name for each in keys for name in _names_by_key(normalize_name, names).get(each, ())}


def _by_letters(written: str, names: frozenset[str]) -> set[str]:
    bare = _without_prefix(written)
    parts = _name_words(bare)
    return {
        name for name in _names_by_key(_letters, names).get(_letters(bare), ()) if _is_close(parts, _name_words(name))
    }


_MATCHERS: Final = dict(zip(STEPS, (_by_prefix, _by_case, _by_letters), strict=True))


@lru_cache(maxsize=16)
def _names_by_key(key: Callable[[str], Hashable], names: frozenset[str]) -> Mapping[Hashable, list[str]]:
    """Returns the names, grouped by the key that a step compares."""
    by_key: dict[Hashable, list[str]] = {}
    for name in names:
        by_key.setdefault(key(name), []).append(name)
    return by_key


def _without_server(name: str) -> str | None:
    """Returns the name without its MCP server prefix; None if it has none."""
    match = _OF_SERVER.fullmatch(name)
    return match[1] if match else None


def _letters(name: str) -> Hashable:
    """Returns a key that swapped or doubled letters do not change; names with other characters: the name itself."""
    if not _SIMPLE.fullmatch(name):
        return name
    return tuple(_NUMBERS.findall(name)), tuple(frozenset(word) for word in _name_words(name))


def _without_prefix(written: str) -> str:
    match = _PREFIXES.match(written)
    if match is None or not (match[0].startswith("mcp__") or match[0][-1] in ".:/"):
        return written
    return written[match.end() :]


def normalize_name(name: str) -> str:
    """Returns the name in lower case without separators between words."""
    return _MARKS.sub("", name.strip().lower())


def _name_words(name: str) -> list[str]:
    return [word.lower() for word in _NAME_WORD.findall(name)]


def _is_close(one: list[str], other: list[str]) -> bool:
    """Whether all words are equal, except for one letter of a long word."""
    differing = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return len(differing) == 1 and _one_letter_off(*sorted(differing[0], key=len))


def _one_letter_off(short: str, long: str) -> bool:
    """Whether one letter is doubled in the longer word, or two letters are swapped."""
    if len(long) < _LONG_WORD or not (short + long).isalpha():
        return False
    common = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        first, is_one_change = common - 1, long[common] == long[common - 1] and short[common:] == long[common + 1 :]
    else:
        swapped = short[common + 1 : common + 2] + short[common] + short[common + 2 :]
        first, is_one_change = common, swapped == long[common:]
    return is_one_change and first >= _EXACT_FIRST and first + 2 <= len(long) - _EXACT_LAST
