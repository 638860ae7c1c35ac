"""One call that was written for several: a list where the schema has room for one of its items.

    cancel({"id": [12, 13], "notify": true})     →     cancel({"id": 12, "notify": true}), cancel({"id": 13, …})

Small models write so where a question is about several things. Lists of one length, in several members, go item by
item. What is done is done to what the model listed, never to more. But a list may be one thing in pieces, which must
not become several actions: so none of text whose name says that it is one (a command, its words; a letter, its
paragraphs; a path, its folders), of time or place (a range, coordinates) is spread; nor one with an item that looks
like a piece of a path, or like all there is (`/`, `..`, `*`), whatever its name; nor one whose items would have to be
made text, lists or objects first, or that lead to the same call twice.
"""

import re
from collections.abc import Collection
from typing import Any, Final

from dragoman.core.messages import JsonText
from dragoman.guard.careful_words import IN_PIECES
from dragoman.guard.compiled_schema import Compiled
from dragoman.guard.repair import Mended, mend
from dragoman.guard.repair_steps import loose, read, words_of, written
from dragoman.guard.violations import Problem

STEP: Final = "spread"
MOST: Final = 16
"""Calls that one is made into."""
_OTHERS: Final = frozenset({STEP, "strings", "wrap", "unwrap", "parse"})
"""Steps that are not taken with an item."""
_PIECE: Final = re.compile(r"\s*(?:[./\\~*?%]*|[/\\~].*|.*[/\\]|[A-Za-z]:.*)\s*", re.DOTALL)
"""An item that stands for a root, for a part of a path, or for everything."""


def spread(arguments: JsonText, schema: Compiled, steps: Collection[str]) -> list[Mended]:
    """The arguments of each call; none where it is not plain that several were meant."""
    if STEP not in steps or not schema.checks:
        return []
    try:
        value = read(arguments)
        names = _lists(value, schema)
    except (ValueError, RecursionError):
        return []
    lengths = {len(value[name]) for name in names}
    if len(lengths) != 1 or not 2 <= (length := lengths.pop()) <= MOST:
        return []
    calls = [each for number in range(length) if (each := _one(value, names, number, schema, steps))]
    return calls if len({each.arguments for each in calls}) == length else []


def _lists(value: Any, schema: Compiled) -> list[str]:
    """The members that have a list in place of one value; none where one of them is one thing in pieces."""
    problems = schema.problems(loose(value)) if isinstance(value, dict) else ()
    found = {problem.path[0]: problem for problem in problems if len(problem.path) == 1}
    lists = {str(name): problem for name, problem in found.items() if isinstance(value[name], list)}
    is_one = any(IN_PIECES & words_of(name) or not _wants_an_item(problem) for name, problem in lists.items())
    return [] if is_one or any(_is_piece(item) for name in lists for item in value[name]) else list(lists)


def _is_piece(item: Any) -> bool:
    return isinstance(item, str) and _PIECE.fullmatch(item) is not None


def _wants_an_item(problem: Problem) -> bool:
    """Whether no list may stand there, whatever its items."""
    if problem.within:
        return all(branch and branch[0].path == problem.path and _wants_an_item(branch[0]) for branch in problem.within)
    return problem.kind in ("type", "enum", "const")


def _one(value: Any, names: Collection[str], number: int, schema: Compiled, steps: Collection[str]) -> Mended | None:
    part = {name: each[number] if name in names else each for name, each in value.items()}
    found = mend(written(part), schema, [step for step in steps if step not in _OTHERS])
    return Mended(found.arguments, (STEP, *found.steps)) if found else None
