"""Whether an answer is right.

Of the prompts of our own the listed answers judge, of the others the leaderboard's own checker. Whether a call is valid
says the package `jsonschema`, which the guard knows nothing of.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jsonschema import Draft202012Validator, FormatChecker

from bench.accuracy import bfcl
from bench.accuracy.cases import Case, own
from dragoman.core.messages import JsonText, ToolCall


@dataclass(frozen=True)
class Verdict:
    """Of one answer."""

    right: bool
    calls: int
    invalid: int
    """Of the calls: they name no offered tool, or their arguments do not fit its schema."""


def judged(case: Case, calls: Sequence[ToolCall]) -> Verdict:
    """How these calls stand to what was asked."""
    right = case.is_right(calls) if case.id.startswith("own_") else bfcl.is_right(case, calls)
    schemas = {tool.name: tool.parameters for tool in case.tools}
    invalid = sum(call.name not in schemas or not is_valid(schemas[call.name], call.arguments) for call in calls)
    return Verdict(right, len(calls), invalid)


def is_valid(schema: JsonText, arguments: JsonText) -> bool:
    """Whether the arguments fit, formats such as dates and addresses included."""
    return bool(_validator(schema).is_valid(json.loads(arguments)))


@cache
def _validator(schema: JsonText) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), format_checker=FormatChecker())


@cache
def cases() -> dict[str, Case]:
    """All that can be judged here, by their ids."""
    known = [*own(), *(bfcl.cases(200) if bfcl.installed() else ())]
    return {case.id: case for case in known}
