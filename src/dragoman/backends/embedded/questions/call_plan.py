"""Several calls in one response, for a model that makes one call of several and stops.

The model knows the number. Asked for it after the prompt (`call_decision`), Qwen2.5-Coder 1.5B counts right for most
prompts (docs/accuracy.md). If it counts two or more, its response is constrained to so many calls in its own format.
"""

import re
from collections.abc import Mapping
from typing import Final

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.questions.call_decision import COUNTS, has_new_question
from dragoman.catalog.models import ModelProfile
from dragoman.core.events import Notice
from dragoman.core.messages import Message, Request, Text
from dragoman.guard.invented_values.identifiers import required_ids
from dragoman.steps.derive import derive_steps

_CODE: Final = re.compile(r"\b[A-Za-z]{1,12}[-_#]?\d{2}")
_SEVERAL: Final = COUNTS[2:]
WHEN_ON: Final = 0.75
"""Probability of several calls from which they are planned with `plan_calls = "on"`."""


def several_calls_from(config: EmbeddedConfig, profile: ModelProfile | None) -> float:
    """Returns the probability of several calls from which they are planned; 0: never.

    Args:
        config: the settings. A user's llama-server may lack the grammars that a number of calls needs.
        profile: the model's row of the catalogue; None: it is not in it.
    """
    measured = profile.several_calls_from if profile else 0.0
    by_setting = {"off": 0.0, "auto": measured, "on": WHEN_ON}
    return by_setting[config.plan_calls] if config.engine == "xllamacpp" else 0.0


def may_plan(request: Request) -> bool:
    """Returns whether several calls are allowed, at the beginning of a turn, and can be written without a result."""
    choice = request.tool_choice
    is_allowed = choice.mode in ("auto", "required") and choice.parallel_tool_calls
    return is_allowed and has_new_question(request) and not _need_results(request)


def _need_results(request: Request) -> bool:
    """Whether the tools may need the results of others: the model would make these up if it had to write all calls."""
    needs_ids = any(map(required_ids, request.tools)) and not _has_code(request.messages[-1])
    return needs_ids or derive_steps(request) is not None


def _has_code(message: Message) -> bool:
    """Whether a text of the user contains what may be an id, such as `P-1234`; a date does not count."""
    return any(isinstance(part, Text) and _CODE.search(part.text) for part in message.parts)


def planned_calls(counts: Mapping[str, float], threshold: float, *, required: bool = False) -> int:
    """Returns the number of calls to which a response is constrained; 0: any number.

    Args:
        counts: probabilities of each number of calls.
        threshold: probability of two or more calls from which they are planned.
        required: whether a call is required; if the model most likely needs one, it then makes up further ones.
    """
    several = {count: counts[count] for count in _SEVERAL}
    if sum(several.values()) < threshold:
        return int(required and max(counts, key=counts.__getitem__) == COUNTS[1])
    return int(max(several, key=several.__getitem__))


def plan_notice(calls: int) -> Notice:
    """Returns the warning that the response is constrained to this number of calls."""
    number = "one call" if calls == 1 else f"{calls} calls"
    return Notice("calls_planned", f"constrained to {number}, the number that the model stated")
