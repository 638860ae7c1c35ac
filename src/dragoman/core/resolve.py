"""Which of the offered tools a model means by a name that it writes.

    Offered(["get_weather", "mcp__files__read"]).resolve("functions.Get_Weather")     ("get_weather", "name_case")

Exactly, else without a prefix that models put before names, or with the one of a server of tools that they leave out;
else whatever the case and the marks between words; else where one letter of a long word is missing, too many, or has
changed places. A letter that is another may make another word (`charge`, `change`), and an `s` at the end leads to what
does more (`delete_event`, `delete_events`), so neither counts; nor is the server that the model names left for another
(`mcp__staging__drop`, `mcp__production__drop`). Each only where it leads to one tool, and no rung after one that leads
to several: what could mean two tools means none. The names of the rungs are those of docs/guard.md.

Source: `functions.` is OpenAI's namespace of tools (https://cookbook.openai.com/articles/openai-harmony), `default_api`
Gemini's; `mcp__SERVER__TOOL` is how Claude Code calls tools of MCP servers (https://code.claude.com/docs/en/mcp;
2026-11).
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

STEPS: Final = ("name_prefix", "name_case", "name_close")
"""How a name may differ from the tool's, in the order in which they are tried."""
_PREFIXES: Final = re.compile(r"(?:functions?|tools?|default_api|mcp__.+?__)[.:/]?")
_OF_SERVER: Final = re.compile(r"mcp__.+?__(.+)")
_MARKS: Final = re.compile(r"(?<=[^\W\d_])[\s_./:-]+(?=[^\W\d_])|(?<=[^\W\d_])[\s_]+(?=\d)|(?<=\d)[\s_]+(?=[^\W\d_])")
"""Between words; a mark before or between digits may be a sign or a point."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_LONG_WORD: Final = 5
"""Letters of a word in which one may be wrong: `get` and `set` are different words."""
_SURE: Final = 2
"""Letters with which it must begin all the same: so are `upload` and `unload`."""
_LONGEST: Final = 128
"""Characters of a name that is looked at at all."""


class Found(NamedTuple):
    """The tool that is meant."""

    name: str
    step: str
    """How it was found; "" where that is its very name."""


class Offered:
    """The names of the tools that are offered."""

    def __init__(self, names: Iterable[str], steps: Collection[str] = STEPS) -> None:
        """`steps`: those of `STEPS` that may be taken."""
        self._names = frozenset(names)
        self._steps = frozenset(steps)

    def resolve(self, written: str) -> Found | None:
        """The tool; None where none is meant for certain."""
        if written in self._names:
            return Found(written, "")
        if not written or len(written) > _LONGEST:
            return None
        for step, meant in ((step, set(_TRIED[step](written, self._names))) for step in STEPS if step in self._steps):
            if meant:
                return Found(meant.pop(), step) if len(meant) == 1 else None
        return None


def _by_prefix(written: str, names: frozenset[str]) -> Iterator[str]:
    if (bare := _without_prefix(written)) in names:
        yield bare
        return
    for name in names:
        if not written.startswith("mcp__") and (found := _OF_SERVER.fullmatch(name)) and found[1] in (written, bare):
            yield name


def _by_case(written: str, names: frozenset[str]) -> Iterator[str]:
    wanted = {plain(written), plain(_without_prefix(written))}
    return (name for name in names if plain(name) in wanted)


def _by_letters(written: str, names: frozenset[str]) -> Iterator[str]:
    wanted = _words(_without_prefix(written))
    return (name for name in names if _is_close(wanted, _words(name)))


_TRIED: Final = dict(zip(STEPS, (_by_prefix, _by_case, _by_letters), strict=True))


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
    if len(one) != len(other):
        return False
    differing = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return len(differing) == 1 and _one_letter_off(*differing[0])


def _one_letter_off(one: str, other: str) -> bool:
    if other == one + "s":
        return False
    short, long = sorted((one, other), key=len)
    if len(short) < _LONG_WORD or len(long) - len(short) > 1 or short[:_SURE] != long[:_SURE]:
        return False
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[same:] == long[same + 1 :]
    rest, theirs = short[same:], long[same:]
    return len(rest) > 1 and rest[0] == theirs[1] and rest[1] == theirs[0] and rest[2:] == theirs[2:]
