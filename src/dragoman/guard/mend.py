"""A call's arguments made what the schema asks for, where it is plain what was meant.

    mend('{"days": "3", "unit": "C"}', compiled(schema))      Mended('{"days":3,"unit":"celsius"}', ("numbers", "enum"))

The schema leads: what it refuses is looked at (`steps`), nothing else, and a step stays only where its refusal is gone.
What comes out is of the schema, or else nothing comes out. So what is valid is never changed, and what was mended is
not mended again. Where branches of a choice could each be met, by different values, none is taken.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from dragoman.core.values import JsonText
from dragoman.guard.policy import ARGUMENTS
from dragoman.guard.problems import Problem
from dragoman.guard.schemas import Compiled
from dragoman.guard.steps import Tried, loose, read, tries, written

ROUNDS: Final = 8
"""What is set right may show what else is wrong, such as an item of a list that was text."""
CHOICES: Final = 3
"""Choices within choices that are looked into."""
WAYS: Final = 16
"""To meet a branch that are tried."""
LONGEST: Final = 1_000_000
"""Characters of arguments that are looked into."""


class Mended(NamedTuple):
    """Arguments that are of the schema."""

    arguments: JsonText
    steps: tuple[str, ...]
    """What was done, in order, each once."""


def mend(arguments: JsonText, schema: Compiled, steps: Collection[str] = ARGUMENTS) -> Mended | None:
    """The arguments as they were meant; None where that is not plain, or they cannot be checked.

    `steps`: those of `ARGUMENTS` that may be taken.
    """
    if not schema.checks or len(arguments) > LONGEST:
        return None
    try:
        value = read(arguments)
        found = _unnested(value, schema, steps) or _mended(value, schema, steps)
    except (ValueError, RecursionError):
        return None
    if found is None:
        return None
    value, taken = found
    text = written(value) if taken else arguments
    return Mended(text, tuple(dict.fromkeys(taken))) if schema.valid(text) else None


_Found = tuple[Any, list[str]]
"""A value, and how it came about."""


def _unnested(value: Any, schema: Compiled, steps: Collection[str]) -> _Found | None:
    """Of arguments that stand one deeper, under a name that is none of theirs."""
    if "nested" not in steps or not isinstance(value, dict) or len(value) != 1 or not schema.problems(loose(value)):
        return None
    [(name, inner)] = value.items()
    known = schema.schema_at(()).get("properties")
    if not isinstance(known, dict) or name in known or not isinstance(inner, dict) or not inner.keys() <= known.keys():
        return None
    found = _mended(inner, schema, steps)
    return (found[0], ["nested", *found[1]]) if found else None


def _mended(value: Any, schema: Compiled, steps: Collection[str]) -> _Found | None:
    taken: list[str] = []
    for _ in range(ROUNDS):
        problems = schema.problems(loose(value))
        if not problems:
            return value, taken
        found = next(_solved(problems, value, schema, steps), None)
        if found is None:
            return None
        value, more = found
        taken += more
    return None


def _solved(problems: Sequence[Problem], value: Any, schema: Compiled, steps: Collection[str]) -> Iterator[_Found]:
    """The value with as many of these problems solved as can be; nothing where none can."""
    taken: list[str] = []
    for problem in problems:
        found = _tried(problem, value, schema, steps, CHOICES)
        if found is not None:
            value, more = found
            taken += more
    if taken:
        yield value, taken


def _tried(problem: Problem, value: Any, schema: Compiled, steps: Collection[str], depth: int) -> _Found | None:
    """The value with this problem gone."""
    try:
        for tried in tries(problem, value, schema):
            if tried.step in steps and _is_gone(problem, tried, schema):
                return tried.value, [tried.step]
    except (KeyError, IndexError, TypeError):  # what was done before has changed what it is about
        return None
    return _chosen(problem, value, schema, steps, depth) if problem.within and depth else None


def _is_gone(problem: Problem, tried: Tried, schema: Compiled) -> bool:
    left = schema.problems(loose(tried.value))
    return not any((each.path, each.kind) == (problem.path, problem.kind) for each in left)


def _chosen(problem: Problem, value: Any, schema: Compiled, steps: Collection[str], depth: int) -> _Found | None:
    """The value as the one branch that it can meet would have it."""
    found: dict[str, _Found] = {}
    for branch in problem.within:
        for met, taken in islice(_met(branch, value, schema, steps, depth - 1), WAYS):
            if _is_gone(problem, Tried("", met), schema):
                found.setdefault(written(met), (met, taken))
                break
    return next(iter(found.values())) if len(found) == 1 else None


def _met(
    branch: Sequence[Problem], value: Any, schema: Compiled, steps: Collection[str], depth: int
) -> Iterator[_Found]:
    """Ways in which all of a branch's problems may go away."""
    if not branch:
        yield value, []
        return
    first, *rest = branch
    ways = [(tried.value, [tried.step]) for tried in tries(first, value, schema) if tried.step in steps]
    if first.within and depth and (inner := _chosen(first, value, schema, steps, depth)):
        ways.append(inner)
    for mended, taken in ways:
        for met, more in _met(rest, mended, schema, steps, depth):
            yield met, [*taken, *more]
