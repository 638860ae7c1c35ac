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


class CallProbability(NamedTuple):
    """The probability that a request needs a call, and the answers of which it was computed."""

    value: float
    answers: WeighedAnswers


async def call_probability(
    engine: CompletesPrompts, body: Mapping[str, Any], *, admitted: bool = False
) -> CallProbability:
    """Returns the probability that a request needs a call.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        admitted: see `ask`.

    Raises:
        DragomanError: see `ask`.
    """
    answers = await ask(engine, body, QUESTION, COUNTS, admitted=admitted)
    return CallProbability(probability_of(answers), answers)


def probability_of(answers: WeighedAnswers) -> float:
    """Returns the probability of any call, by the answers to how many calls are needed."""
    return 1 - answers.probabilities[_NO_CALL]


async def ask_if_needed(engine: CompletesPrompts, body: Mapping[str, Any]) -> CallProbability | None:
    """Returns the probability of a call; None if the question failed, which does not fail the response.

    Args:
        engine: the engine.
        body: the engine's request for the response.

    Raises:
        QueueFullError: all slots and the queue are taken.
    """
    try:
        return await call_probability(engine, body)
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
        f"by the model's own count the probability of a tool call was {probability:.2f}, below {threshold:g}: it had "
        "to answer in words",
    )
