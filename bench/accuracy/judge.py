"""Whether an answer is right.

Our own prompts list their answers; the leaderboard's checker judges the others. Where no call is right, text that looks
like a call of any tool is wrong, too: a client would see it as part of the answer. The package `jsonschema`, which the
guard does not use, decides whether a call is valid.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jsonschema import Draft202012Validator, FormatChecker

from bench.accuracy import bfcl
from bench.accuracy.cases import Case, fresh, own
from dragoman.core.messages import JsonText, ToolCall

CALL_AS_TEXT = re.compile(r'"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"|</?(?:tools?|tool_call)>')


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer."""

    right: bool
    calls: int
    invalid: int
    """Number of calls of unknown tools, or whose arguments do not match the schema."""


def judge_calls(case: Case, calls: Sequence[ToolCall], text: str = "") -> Verdict:
    """Judges the calls of a prompt, and the text for the user if no call is right."""
    right = case.is_right(calls) if case.id.startswith(("own_", "fresh_")) else bfcl.is_right(case, calls)
    if case.call_count == "none" and looks_like_call(text):
        right = False
    schemas = {tool.name: tool.parameters for tool in case.tools}
    invalid = sum(call.name not in schemas or not is_valid(schemas[call.name], call.arguments) for call in calls)
    return Verdict(right, len(calls), invalid)


def looks_like_call(text: str) -> bool:
    """Whether text for the user contains what looks like a call of any tool."""
    return CALL_AS_TEXT.search(text) is not None


def is_valid(schema: JsonText, arguments: JsonText) -> bool:
    """Whether the arguments match the schema, including formats such as dates and addresses."""
    return bool(_validator(schema).is_valid(json.loads(arguments)))


@cache
def _validator(schema: JsonText) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema), format_checker=FormatChecker())


@cache
def cases() -> dict[str, Case]:
    """Returns all cases that can be judged here, by id."""
    known = [*own(), *fresh(), *(bfcl.cases(200) if bfcl.installed() else ())]
    return {case.id: case for case in known}
