"""Repairs of one call, as text."""

from collections.abc import Collection

from dragoman.guard.arguments import Arguments
from dragoman.guard.policy import ARGUMENT_REPAIRS
from dragoman.guard.repair import RepairedArguments, repair
from dragoman.guard.split_calls import SPLIT_INTO_CALLS
from dragoman.guard.validation.compiled_schema import CompiledSchema


def repair_one(
    text: str, schema: CompiledSchema, enabled: Collection[str] = ARGUMENT_REPAIRS
) -> RepairedArguments | None:
    """The repaired arguments; the call is never split into several."""
    found = repair(Arguments(text), schema, frozenset(enabled) - {SPLIT_INTO_CALLS})
    return found[0] if found else None


def repair_several(
    text: str, schema: CompiledSchema, enabled: Collection[str] = ARGUMENT_REPAIRS
) -> list[RepairedArguments]:
    """The arguments of each call if one call was written for several; else none."""
    found = repair(Arguments(text), schema, enabled) or ()
    return [*found] if len(found) > 1 else []
