"""One call that was written for several: a list where the schema has room for one of its items.

    cancel({"id": [12, 13], "notify": true})     →     cancel({"id": 12, "notify": true}), cancel({"id": 13, …})

Small models write so where a question is about several things. Lists of one length, in several members, go item by
item.
"""

from collections.abc import Collection
from typing import Any, Final

from dragoman.core.values import JsonText
from dragoman.guard.mend import Mended, mend
from dragoman.guard.schemas import Compiled
from dragoman.guard.steps import loose, read, written

STEP: Final = "spread"
MOST: Final = 16
"""Calls that one is made into."""


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
    made = [_one(value, names, number, schema, steps) for number in range(length)]
    calls = [each for each in made if each]
    return calls if len(calls) == length else []


def _lists(value: Any, schema: Compiled) -> list[str]:
    """The members that have a list in place of one value."""
    problems = schema.problems(loose(value)) if isinstance(value, dict) else ()
    places = {problem.path[0]: problem for problem in problems if len(problem.path) == 1}
    return [
        name
        for name, problem in places.items()
        if isinstance(name, str) and problem.kind in ("type", "enum", "any_of") and isinstance(value[name], list)
    ]


def _one(value: Any, names: Collection[str], number: int, schema: Compiled, steps: Collection[str]) -> Mended | None:
    part = {name: each[number] if name in names else each for name, each in value.items()}
    found = mend(written(part), schema, [step for step in steps if step != STEP])
    return Mended(found.arguments, (STEP, *found.steps)) if found else None
