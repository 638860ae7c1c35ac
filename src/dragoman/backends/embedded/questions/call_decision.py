"""Whether to call a tool at all, for a model that calls one where none fits.

The model is asked how many calls the request needs. Where the probability of any call is below a threshold, which was
measured for the model (`calibration`), the response is constrained to words.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dragoman.backends.embedded.questions.ask import CompletesPrompts, WeighedAnswers, ask
from dragoman.constraints.words_only import words_only_grammar
from dragoman.core.errors import DragomanError, QueueFullError, loggable_message
from dragoman.core.events import Notice
from dragoman.core.messages import Request, Text, ToolResult
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.embedded")

QUESTION: Final = "Number of function calls needed: "
COUNTS: Final = tuple("0123456789")
_NO_CALL: Final = COUNTS[0]
OPENINGS: Final = ("```", "{", "The", "Hello", "You", "It", "In", "To", "Sure", "Yes", "No", "Here")
"""Usual first tokens of a reply; with the first two, small models open a call."""
_CALL_OPENINGS: Final = OPENINGS[:2]


class CallProbability(NamedTuple):
    """The probability that a request needs a call, and the answers of which it was computed."""

    value: float
    answers: WeighedAnswers


async def call_probability(
    engine: CompletesPrompts, body: Mapping[str, Any], *, weighs_opening: bool = True
) -> CallProbability:
    """Returns the probability that a request needs a call: that of any count, times that of an opening with a call.

    Either alone finds fewer prompts without a fitting tool.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        weighs_opening: whether the opening counts, which takes one more token; otherwise only the count does.

    Raises:
        DragomanError: see `ask`.
    """
    if not weighs_opening:
        answers = await ask(engine, body, QUESTION, COUNTS)
        return CallProbability(1 - answers.probabilities[_NO_CALL], answers)
    opening = await ask(engine, body, "", OPENINGS)
    answers = await ask(engine, body, QUESTION, COUNTS, admitted=True)
    value = (1 - answers.probabilities[_NO_CALL]) * opening_probability(opening)
    cost = answers._replace(
        cached_tokens=min(answers.cached_tokens, opening.cached_tokens),
        output_tokens=answers.output_tokens + opening.output_tokens,
    )
    return CallProbability(value, cost)


def opening_probability(opening: WeighedAnswers) -> float:
    """Returns the probability that a reply opens with a call, by the answers to how it opens."""
    return sum(opening.probabilities[each] for each in _CALL_OPENINGS)


async def ask_if_needed(
    engine: CompletesPrompts, body: Mapping[str, Any], *, weighs_opening: bool
) -> CallProbability | None:
    """Returns the probability of a call; None if the question failed, which does not fail the response.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        weighs_opening: see `call_probability`.

    Raises:
        QueueFullError: all slots and the queue are taken.
    """
    try:
        return await call_probability(engine, body, weighs_opening=weighs_opening)
    except QueueFullError:
        raise
    except DragomanError as error:
        log.warning("the model was not asked whether to call a tool: %s", loggable_message(error))
        return None


def may_decide(request: Request) -> bool:
    """Returns whether the choice is free, at the beginning of a turn."""
    return request.tool_choice.mode == "auto" and has_new_question(request)


def has_new_question(request: Request) -> bool:
    """Returns whether the user has just written, and neither a schema nor steps restrict the response."""
    if request.response_schema or request.steps is not None:
        return False
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user" or any(isinstance(part, ToolResult) for part in last.parts):
        return False
    return any(isinstance(part, Text) for part in last.parts)


def words_grammar(format: Format) -> str:
    """Returns the grammar of a reply without calls, for LLGuidance; "" if the texts that begin calls are not known."""
    markers = dict.fromkeys((*format.calls, *(format.markup.calls if format.markup else ())))
    return words_only_grammar((*markers,), format.reasoning_tags) if markers else ""


def words_notice(probability: float, threshold: float) -> Notice:
    """Returns the warning that no call was allowed."""
    return Notice(
        "call_not_needed",
        f"the probability of a tool call was {probability:.2f} by the model's own estimate, below {threshold:g}: it "
        "had to answer in words",
    )
