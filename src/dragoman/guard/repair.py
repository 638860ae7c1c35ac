"""Repairs a call's arguments to match the schema, if their meaning is clear.

    repair(Arguments('{"days": "3", "unit": "C"}'), compile_schema(schema))
        (RepairedArguments('{"days":3,"unit":"celsius"}', ("to_number", "match_enum")),)

The validator decides: only a value that it reports is changed (`repair_steps`), and a repair is kept only if it removes
the violation. The result matches the schema, or nothing is returned. So valid arguments are never changed, and repaired
ones are not repaired again. If different values would match several branches of a choice, none is chosen; nor is a
branch that only a default would match, because the model did not choose it. If a member occurs twice with different
values, the arguments stay as they are, because either value could be meant.

The work is bounded by `MAX_WORK`, the number of checks and violations, for any schema and any arguments.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.core.messages import JsonText
from dragoman.guard.arguments import Arguments, encode_exact, with_plain_numbers
from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.repair_steps import repair_attempts, unwrap_nested
from dragoman.guard.split_calls import NOT_FOR_ITEMS, SPLIT_INTO_CALLS, split_into_calls
from dragoman.guard.validation.compiled_schema import UNDECODABLE, CompiledSchema
from dragoman.guard.validation.violations import Violation

MAX_CHOICE_DEPTH: Final = 3
"""Nesting depth of choices that are repaired."""
MAX_WORK: Final = 2000
"""Budget of violations in all checks: a call with fifty errors takes 10 ms. The event loop is blocked meanwhile, so for
more errors the model is re-asked instead."""
_CHECK_COST: Final = 10
_CHARS_PER_UNIT: Final = 5000
_MEMBERS_PER_UNIT: Final = 20
"""Cost of one check in violations, plus one for each so many characters, and one for each so many commas and colons."""
MAX_ARGUMENT_CHARS: Final = 1_000_000
"""Longer arguments are not repaired, in characters."""


class RepairedArguments(NamedTuple):
    """Arguments that match the schema."""

    arguments: JsonText
    repairs: tuple[str, ...]
    """Names of the repairs that were made, in order, each once."""


def repair(
    arguments: Arguments, schema: CompiledSchema, enabled: Collection[str] = ARGUMENT_REPAIRS
) -> tuple[RepairedArguments, ...] | None:
    """Repairs arguments to match a schema.

    Args:
        arguments: The arguments as the model wrote them.
        schema: The schema of the tool.
        enabled: Names of the repairs in `ARGUMENT_REPAIRS` that are allowed.

    Returns:
        The arguments of the call, or of each call if one was written for several; None if their meaning is not clear or
        they cannot be checked.
    """
    if not schema.can_check:
        return None
    if repaired := _repair_call(arguments, schema, enabled):
        return (repaired,)
    return _repair_several(arguments, schema, enabled) if SPLIT_INTO_CALLS in enabled else None


def _repair_call(arguments: Arguments, schema: CompiledSchema, enabled: Collection[str]) -> RepairedArguments | None:
    if len(arguments.text) > MAX_ARGUMENT_CHARS or arguments.exact is UNDECODABLE:
        return None
    try:
        result = _Repairer(arguments, schema, enabled).repair()
        if result is None:
            return None
        value, applied = result
        made = Arguments(encode_exact(value)) if applied else arguments
    except (ValueError, RecursionError):
        return None
    return RepairedArguments(made.text, tuple(dict.fromkeys(applied))) if made.valid(schema) else None


def _repair_several(
    arguments: Arguments, schema: CompiledSchema, enabled: Collection[str]
) -> tuple[RepairedArguments, ...] | None:
    """The arguments of each call that one call was written for; None if one cannot be repaired or is there twice."""
    for_items = frozenset(enabled) - NOT_FOR_ITEMS
    calls: dict[JsonText, RepairedArguments] = {}
    parts = split_into_calls(arguments, schema)
    for part in parts:
        if repaired := _repair_call(part, schema, for_items):
            repairs = (SPLIT_INTO_CALLS, *repaired.repairs)
            calls[repaired.arguments] = RepairedArguments(repaired.arguments, repairs)
    return tuple(calls.values()) if calls and len(calls) == len(parts) else None


_Result: TypeAlias = tuple[Any, list[str]]
"""A value, and the names of the repairs that led to it."""
_Check: TypeAlias = Callable[[Any], Sequence[Violation]]
"""Returns the violations of a value, by the whole schema or by one branch of a choice."""


class _Repairer:
    """Repairs the arguments of one call, within a budget."""

    def __init__(self, arguments: Arguments, schema: CompiledSchema, enabled: Collection[str]) -> None:
        self._arguments, self._schema, self._enabled = arguments, schema, enabled
        members = arguments.text.count(",") + arguments.text.count(":")
        self._check_cost = _CHECK_COST + len(arguments.text) // _CHARS_PER_UNIT + members // _MEMBERS_PER_UNIT
        self._budget = MAX_WORK
        self._last: tuple[Any, Sequence[Violation]] = (None, ())

    def repair(self) -> _Result | None:
        """Returns the value that matches the schema, and its repairs; None if there is none.

        Raises:
            ValueError: The budget is spent.
        """
        value = self._arguments.exact
        inner = unwrap_nested(value, self._schema) if "unnest" in self._enabled else None
        if (
            inner is not None
            and self._violations(value)
            and (repaired := self._repair_all(self._violations, inner, MAX_CHOICE_DEPTH))
        ):
            return repaired[0], ["unnest", *repaired[1]]
        return self._repair_all(self._violations, value, MAX_CHOICE_DEPTH)

    def _violations(self, value: Any) -> Sequence[Violation]:
        if value is self._last[0]:
            return self._last[1]
        if self._budget <= 0:
            raise ValueError("too much is wrong")
        violations = (
            self._arguments.violations(self._schema)
            if value is self._arguments.exact
            else self._schema.violations(with_plain_numbers(value))
        )
        self._budget -= self._check_cost + _count(violations)
        self._last = (value, violations)
        return violations

    def _repair_all(self, look: _Check, value: Any, depth: int) -> _Result | None:
        """Removes all violations that `look` finds, one at a time."""
        steps: list[str] = []
        while violations := look(value):
            # Removing a violation can also explain an unknown member, so those are tried last.
            ordered = sorted(violations, key=lambda violation: violation.kind == "additional")
            solved = (self._repair_one(violation, look, value, depth) for violation in ordered)
            solution = next((each for each in solved if each), None)
            if solution is None:
                return None
            value, more = solution
            steps += more
        return value, steps

    def _repair_one(self, violation: Violation, look: _Check, value: Any, depth: int) -> _Result | None:
        """Removes this violation."""
        for tried in repair_attempts(violation, value, self._schema):
            is_free = tried.repair in self._enabled and (depth == MAX_CHOICE_DEPTH or tried.repair != "fill_default")
            if is_free and _is_resolved(violation, look(tried.value)):
                return tried.value, [tried.repair]
        return self._repair_branch(violation, look, value, depth - 1) if violation.branches and depth else None

    def _repair_branch(self, violation: Violation, look: _Check, value: Any, depth: int) -> _Result | None:
        """Repairs the value to match a branch of a choice; None if several branches are possible."""
        branches: dict[str, _Result] = {}
        for number in range(len(violation.branches)):
            met = self._repair_all(_branch_check(look, violation, number), value, depth)
            if met and _is_resolved(violation, look(met[0])):
                branches.setdefault(encode_exact(met[0]), met)
            if len(branches) > 1:
                return None
        return next(iter(branches.values()), None)


def _count(violations: Sequence[Violation]) -> int:
    return len(violations) + sum(_count(branch) for violation in violations for branch in violation.branches)


def _branch_check(look: _Check, violation: Violation, number: int) -> _Check:
    """A check by one branch of the choice that this violation is about."""

    def violations_of(value: Any) -> Sequence[Violation]:
        choices = (each.branches for each in look(value) if _is_same_violation(violation, each))
        return next((branches[number] for branches in choices if number < len(branches)), ())

    return violations_of


def _is_resolved(violation: Violation, left: Sequence[Violation]) -> bool:
    return not any(_is_same_violation(violation, each) for each in left)


def _is_same_violation(one: Violation, other: Violation) -> bool:
    return (one.path, one.kind, one.expected) == (other.path, other.kind, other.expected) and one.schema == other.schema
