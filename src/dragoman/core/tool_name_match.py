"""Which of the offered tools a model means by a name that it writes.

    Offered(["get_weather", "mcp__files__read"]).resolve("functions.Get_Weather")     ("get_weather", "name_case")

Exactly, else without a prefix that models put before names, or with the one of a server of tools that they leave out;
else whatever the case and the marks between words; else where two letters inside a long word have changed places, or
one is doubled, or is not. A letter that is another, missing or too many may make another word (`charge`, `change`;
`contact`, `contract`; `block`, `lock`), and another number is another thing (`host12`, `host21`), so none of these
counts; nor is the server that the model names left for another (`mcp__staging__drop`, `mcp__production__drop`). Each
only where it leads to one tool, and no rung after one that leads to several: what could mean two tools means none. The
names of the rungs are those of docs/guard.md.

With thousands of tools a look at each takes a tenth of a second, so they are sorted once by what a rung looks for, and
what came of a name is kept.

Source: `functions.` is OpenAI's namespace of tools (https://cookbook.openai.com/articles/openai-harmony), `default_api`
Gemini's; `mcp__SERVER__TOOL` is how Claude Code calls tools of MCP servers (https://code.claude.com/docs/en/mcp;
2026-11).
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

STEPS: Final = ("name_prefix", "name_case", "name_close")
"""How a name may differ from the tool's, in the order in which they are tried."""
_PREFIXES: Final = re.compile(r"(?:functions?|tools?|default_api|mcp__.+?__)[.:/]?")
_OF_SERVER: Final = re.compile(r"mcp__.+?__(.+)")
_MARKS: Final = re.compile(r"(?<=[^\W\d_])[\s_./:-]+(?=[^\W\d_])|(?<=[^\W\d_])[\s_]+(?=\d)|(?<=\d)[\s_]+(?=[^\W\d_])")
"""Between words; a mark before or between digits may be a sign or a point."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SIMPLE: Final = re.compile(r"[\w\s./:-]*", re.ASCII)
_NUMBERS: Final = re.compile(r"[-.]?\d+", re.ASCII)
_LONG_WORD: Final = 7
"""Letters of a word in which one may be wrong: `diner` and `dinner`, `trial` and `trail` are different words."""
_SURE_FIRST, _SURE_LAST = 3, 2
"""Letters with which it must begin and end all the same: so are `prefect` and `perfect`."""
_LONGEST: Final = 128
"""Characters of a name that is looked at at all."""
_NAME: Final = re.compile(r"[^\n\r<>]*\w[^\n\r<>]*")
_KEPT: Final = 256
"""Names of which is kept what they mean: an answer may have thousands, each of its own."""


def is_name(text: str) -> bool:
    """Whether this may be a tool's name at all: one line with a letter or digit in it, and no tag."""
    return bool(_NAME.fullmatch(text))


class NameMatch(NamedTuple):
    """The tool that is meant."""

    name: str
    step: str
    """How it was found; "" where that is its very name."""


class ToolNames:
    """The names of the tools that are offered."""

    def __init__(self, names: Iterable[str], steps: Collection[str] = STEPS) -> None:
        """`steps`: those of `STEPS` that may be taken."""
        self._names = frozenset(names)
        self._steps = frozenset(steps)
        self._resolved: dict[str, NameMatch | None] = {}

    def resolve(self, written: str) -> NameMatch | None:
        """The tool; None where none is meant for certain."""
        if written in self._names:
            return NameMatch(written, "")
        if not written or len(written) > _LONGEST:
            return None
        if written in self._resolved:
            return self._resolved[written]
        found = self._sought(written)
        if len(self._resolved) < _KEPT:
            self._resolved[written] = found
        return found

    def _sought(self, written: str) -> NameMatch | None:
        for step in (each for each in STEPS if each in self._steps):
            if meant := _TRIED[step](written, self._names):
                return NameMatch(meant.pop(), step) if len(meant) == 1 else None
        return None


def _by_prefix(written: str, names: frozenset[str]) -> set[str]:
    if (bare := _without_prefix(written)) in names:
        return {bare}
    if written.startswith("mcp__"):
        return set()
    return {name for each in {written, bare} for name in _sorted(_bare, names).get(each, ())}


def _by_case(written: str, names: frozenset[str]) -> set[str]:
    wanted = {plain(written), plain(_without_prefix(written))}
    return {name for each in wanted for name in _sorted(plain, names).get(each, ())}


def _by_letters(written: str, names: frozenset[str]) -> set[str]:
    bare = _without_prefix(written)
    wanted = _words(bare)
    return {name for name in _sorted(_letters, names).get(_letters(bare), ()) if _is_close(wanted, _words(name))}


_TRIED: Final = dict(zip(STEPS, (_by_prefix, _by_case, _by_letters), strict=True))


@lru_cache(maxsize=16)
def _sorted(key: Callable[[str], Hashable], names: frozenset[str]) -> Mapping[Hashable, list[str]]:
    """The names by what is looked for in them."""
    found: dict[Hashable, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return found


def _bare(name: str) -> str | None:
    """A name without its server; None where it has none."""
    found = _OF_SERVER.fullmatch(name)
    return found[1] if found else None


def _letters(name: str) -> Hashable:
    """What does not change where letters change places, or are doubled; of names with other marks, all."""
    if not _SIMPLE.fullmatch(name):
        return name
    return tuple(_NUMBERS.findall(name)), tuple(frozenset(word) for word in _words(name))


def _without_prefix(written: str) -> str:
    found = _PREFIXES.match(written)
    if found is None or not (found[0].startswith("mcp__") or found[0][-1] in ".:/"):
        return written
    return written[found.end() :]


def plain(name: str) -> str:
    """A name without case, and without the marks between its words."""
    return _MARKS.sub("", name.strip().lower())


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _is_close(one: list[str], other: list[str]) -> bool:
    """Whether all words of the name that is written are the tool's but for one letter of a long one."""
    differing = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return len(differing) == 1 and _one_letter_off(*sorted(differing[0], key=len))


def _one_letter_off(short: str, long: str) -> bool:
    """Whether one letter is doubled in the longer word, or two have changed places."""
    if len(long) < _LONG_WORD or not (short + long).isalpha():
        return False
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        first, is_one = same - 1, long[same] == long[same - 1] and short[same:] == long[same + 1 :]
    else:
        swapped = short[same + 1 : same + 2] + short[same] + short[same + 2 :]
        first, is_one = same, swapped == long[same:]
    return is_one and first >= _SURE_FIRST and first + 2 <= len(long) - _SURE_LAST
