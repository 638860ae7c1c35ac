"""A call's arguments made what the schema asks for, where it is plain what was meant.

    mend('{"days": "3", "unit": "C"}', compiled(schema))      Mended('{"days":3,"unit":"celsius"}', ("numbers", "enum"))

The schema leads: what it refuses is looked at (`steps`), nothing else, and a step stays only where its refusal is gone.
What comes out is of the schema, or else nothing comes out. So what is valid is never changed, and what was mended is
not mended again. Where branches of a choice could each be met, by different values, none is taken; nor is one that
could only be met by a default, which is no choice of the model's. A member that is written twice, differently, could
mean either: such arguments stay as they are.

The work is bounded by what the validator looks at and finds (`WORK`), whatever schema and arguments are.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.messages import JsonText
from dragoman.guard.compiled_schema import Compiled
from dragoman.guard.policy import ARGUMENTS
from dragoman.guard.repair_steps import loose, read, tries, unnested, written
from dragoman.guard.violations import Problem

CHOICES: Final = 3
"""Choices within choices that are looked into."""
WORK: Final = 2000
"""Problems that are found, in all looks of the validator: a call with fifty slips takes 10 ms. Nothing
else is served meanwhile, so more than fifty slips are rather asked about."""
_LOOK: Final = 10
_CHARS: Final = 5000
_MEMBERS: Final = 20
"""A look costs as much as so many problems, and one more for each so many characters, or commas and colons."""
LONGEST: Final = 1_000_000
"""Characters of arguments that are looked into at all."""


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
        found = _Mending(schema, steps, arguments).mended(value)
        if found is None:
            return None
        value, taken = found
        text = written(value) if taken else arguments
    except (ValueError, RecursionError):
        return None
    return Mended(text, tuple(dict.fromkeys(taken))) if schema.valid(text) else None


_Found: TypeAlias = tuple[Any, list[str]]
"""A value, and how it came about."""
_Look: TypeAlias = Callable[[Any], Sequence[Problem]]
"""What is wrong with a value, by the whole schema or by one branch of a choice."""


class _Mending:
    """Of one call."""

    def __init__(self, schema: Compiled, steps: Collection[str], arguments: str) -> None:
        self._schema, self._steps = schema, steps
        members = arguments.count(",") + arguments.count(":")
        self._left, self._look_costs = WORK, _LOOK + len(arguments) // _CHARS + members // _MEMBERS
        self._last: tuple[Any, Sequence[Problem]] = (None, ())

    def mended(self, value: Any) -> _Found | None:
        """The value as the schema has it.

        Raises: ValueError: that would take too long.
        """
        inner = unnested(value, self._schema) if "nested" in self._steps else None
        if inner is not None and self._problems(value) and (found := self._settled(self._problems, inner, CHOICES)):
            return found[0], ["nested", *found[1]]
        return self._settled(self._problems, value, CHOICES)

    def _problems(self, value: Any) -> Sequence[Problem]:
        if value is self._last[0]:
            return self._last[1]
        if self._left <= 0:
            raise ValueError("too much is wrong")
        found = self._schema.problems(loose(value))
        self._left -= self._look_costs + _number(found)
        self._last = (value, found)
        return found

    def _settled(self, look: _Look, value: Any, depth: int) -> _Found | None:
        """The value with all that is seen to be wrong set right, one thing at a time."""
        taken: list[str] = []
        while problems := look(value):
            # What one step sets right may be why a member is not known, so those come last.
            ordered = sorted(problems, key=lambda problem: problem.kind == "additional")
            solved = (self._solved(problem, look, value, depth) for problem in ordered)
            found = next((each for each in solved if each), None)
            if found is None:
                return None
            value, more = found
            taken += more
        return value, taken

    def _solved(self, problem: Problem, look: _Look, value: Any, depth: int) -> _Found | None:
        """The value with this problem gone."""
        for tried in tries(problem, value, self._schema):
            is_free = tried.step in self._steps and (depth == CHOICES or tried.step != "defaults")
            if is_free and _is_gone(problem, look(tried.value)):
                return tried.value, [tried.step]
        return self._chosen(problem, look, value, depth - 1) if problem.within and depth else None

    def _chosen(self, problem: Problem, look: _Look, value: Any, depth: int) -> _Found | None:
        """The value as the one branch that it can meet would have it."""
        found: dict[str, _Found] = {}
        for number in range(len(problem.within)):
            met = self._settled(_branch(look, problem, number), value, depth)
            if met and _is_gone(problem, look(met[0])):
                found.setdefault(written(met[0]), met)
            if len(found) > 1:
                return None
        return next(iter(found.values()), None)


def _number(problems: Sequence[Problem]) -> int:
    return len(problems) + sum(_number(branch) for problem in problems for branch in problem.within)


def _branch(look: _Look, problem: Problem, number: int) -> _Look:
    """What is wrong by one branch of the choice that this problem is of."""

    def seen(value: Any) -> Sequence[Problem]:
        choices = (each.within for each in look(value) if _is_same(problem, each))
        return next((within[number] for within in choices if number < len(within)), ())

    return seen


def _is_gone(problem: Problem, left: Sequence[Problem]) -> bool:
    return not any(_is_same(problem, each) for each in left)


def _is_same(one: Problem, other: Problem) -> bool:
    return (one.path, one.kind, one.expected) == (other.path, other.kind, other.expected) and one.schema == other.schema
