"""Whether to call a tool at all, for a model that calls one where none fits.

The model is asked how many calls the request needs. Where the probability of any call is below a threshold, which was
measured for the model (`calibration`), the model is told that no call is needed, and constrained to words.
"""

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dragoman.backends.embedded.continued import CompletesPrompts
from dragoman.backends.embedded.questions.ask import WeighedAnswers, ask
from dragoman.constraints.words_only import words_only_grammar
from dragoman.core.errors import DragomanError, QueueFullError, loggable_message
from dragoman.core.events import Notice
from dragoman.core.messages import Request, Text, Tool, ToolResult
from dragoman.guard.invented_values.identifiers import name_words
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.embedded")

QUESTION: Final = "Number of function calls needed: "
WORDS_NOTE: Final = "(No function call is needed. Answer in plain words.)"
"""Follows the user's text if the model needs no call. With a grammar alone, small models write around it: calls in
Python, or JSON with mistakes."""
COUNTS: Final = tuple("0123456789")
_NO_CALL: Final = COUNTS[0]
_WORD_OPENINGS: Final = ("The", "Hello", "You", "It", "In", "To", "Sure", "Yes", "No", "Here")
"""Usual first tokens of a reply in words."""
_CALL_OPENINGS: Final = ("```", "{")
"""With these, small models open a call in any format."""
_SHELLS: Final = frozenset(("bash", "cmd", "exec", "powershell", "pwsh", "sh", "shell", "stdin", "zsh"))
"""Words in the names of tools that run commands."""
_PROGRAMS: Final = frozenset(
    ("code", "command", "commands", "process", "processes", "program", "python", "script", "terminal")
)
"""Words that mean the same next to one of `_RUNS`; others process a refund or execute a trade."""
_RUNS: Final = frozenset(("execute", "execution", "interpreter", "kill", "run", "spawn", "start"))
_PROGRAMS_FIRST: Final = ("python", "terminal")
_WHOLE_NAMES: Final = (["command"], ["computer"], ["computer", "use"], ["execute"], ["process"])
_JSON_OPENERS: Final = {"{", "[", "`"}


class CallProbability(NamedTuple):
    """The probability that a request needs a call, and the answers of which it was computed."""

    value: float
    answers: WeighedAnswers


async def call_probability(
    engine: CompletesPrompts, body: Mapping[str, Any], opening_format: Format | None
) -> CallProbability:
    """Returns the probability that a request needs a call: that of any count, times that of an opening with a call.

    Either alone finds fewer prompts without a fitting tool.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        opening_format: the format of the model, by which the opening counts, too, for one more token; None: only the
            count does.

    Raises:
        DragomanError: see `ask`.
    """
    opening = await ask(engine, body, "", openings(opening_format)) if opening_format else None
    return await _counted(engine, body, opening)


async def _counted(
    engine: CompletesPrompts, body: Mapping[str, Any], opening: WeighedAnswers | None
) -> CallProbability:
    """Returns the probability of a call, after the question for the opening, if there was one."""
    if opening is None:
        answers = await ask(engine, body, QUESTION, COUNTS)
        return CallProbability(1 - answers.probabilities[_NO_CALL], answers)
    answers = await ask(engine, body, QUESTION, COUNTS, admitted=True)
    value = (1 - answers.probabilities[_NO_CALL]) * opening_probability(opening)
    cost = answers._replace(
        cached_tokens=min(answers.cached_tokens, opening.cached_tokens),
        output_tokens=answers.output_tokens + opening.output_tokens,
    )
    return CallProbability(value, cost)


def openings(format: Format) -> Sequence[str]:
    """Returns texts with which a reply may open: the format's first marker of a call, and those of any format.

    A marker that may have its first token in common with one of the others is left out.
    """
    usual = (*_CALL_OPENINGS, *_WORD_OPENINGS)
    marker = next((each for each in _call_markers(format) if each), "")
    return usual if not marker or any(each[0] == marker[0] for each in usual) else (marker, *usual)


def opening_probability(opening: WeighedAnswers) -> float:
    """Returns the probability that a reply opens with a call, by the answers to how it opens."""
    return sum(share for each, share in opening.probabilities.items() if each not in _WORD_OPENINGS)


async def ask_if_possible(
    engine: CompletesPrompts, body: Mapping[str, Any], opening_format: Format | None
) -> tuple[CallProbability | None, WeighedAnswers | None]:
    """Returns the probability of a call, None if a question failed, and the answers that cost something.

    A failed question does not fail the response.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        opening_format: see `call_probability`.

    Raises:
        QueueFullError: all slots and the queue are taken.
    """
    opening = None
    try:
        if opening_format:
            opening = await ask(engine, body, "", openings(opening_format))
        found = await _counted(engine, body, opening)
        return found, found.answers
    except QueueFullError:
        raise
    except DragomanError as error:
        log.warning("the model was not asked whether to call a tool: %s", loggable_message(error))
        return None, opening


def may_decide(request: Request) -> bool:
    """Returns whether the choice is free, at the beginning of a turn."""
    return request.tool_choice.mode == "auto" and has_new_question(request)


def has_new_question(request: Request) -> bool:
    """Returns whether the user has just written to an assistant whose number of calls can be estimated.

    Neither a schema nor steps may restrict the response. Agents with a tool that runs commands are left out: with their
    prompts the estimate does not tell tasks from questions, and most of what users write to them is a task.
    """
    if request.response_schema or request.steps is not None or any(map(_runs_commands, request.tools)):
        return False
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user" or any(isinstance(part, ToolResult) for part in last.parts):
        return False
    return any(isinstance(part, Text) for part in last.parts)


def _runs_commands(tool: Tool) -> bool:
    tokens = [token for token in name_words(tool.name) if token != "in"]
    if not _SHELLS.isdisjoint(tokens) or tokens in _WHOLE_NAMES or (tokens and tokens[0] in _PROGRAMS_FIRST):
        return True
    return any({one, other} & _RUNS and {one, other} & _PROGRAMS for one, other in pairwise(tokens))


def has_distinct_calls(format: Format) -> bool:
    """Returns whether calls in this format differ from words by markers, or by JSON with the name of a tool."""
    if not _call_markers(format):
        return False
    untagged = "".join(format.markup.untagged_calls) if format.markup else ""
    return not untagged or (format.arguments != "Python" and set(untagged) <= _JSON_OPENERS)


def words_grammar(format: Format, tools: Sequence[Tool], template: str) -> str:
    """Returns the grammar of a reply without calls, for LLGuidance; "" if calls do not differ enough from words.

    Args:
        format: the format of the model.
        tools: the tools that the model may call otherwise.
        template: the chat template; reasoning is allowed if its marker is in it.
    """
    if not has_distinct_calls(format):
        return ""
    reasoning = {opening: closing for opening, closing in format.reasoning_tags.items() if opening in template}
    return words_only_grammar(_call_markers(format), [tool.name for tool in tools], reasoning)


def _call_markers(format: Format) -> Sequence[str]:
    """Returns the texts that begin calls."""
    return [*dict.fromkeys((*format.calls, *(format.markup.calls if format.markup else ())))]


def with_words_note(request: Request) -> Request:
    """Returns the request with `WORDS_NOTE` after the user's text; what precedes the note stays cached.

    Args:
        request: a request whose last message is the user's.
    """
    *earlier, last = request.messages
    *before, end = last.parts
    parts = [replace(end, text=f"{end.text}\n\n{WORDS_NOTE}")] if isinstance(end, Text) else [end, Text(WORDS_NOTE)]
    return replace(request, messages=(*earlier, replace(last, parts=(*before, *parts))))


def words_notice(probability: float, threshold: float) -> Notice:
    """Returns the warning that no call was allowed."""
    return Notice(
        "call_not_needed",
        f"the probability of a tool call was {probability:.2f} by the model's own estimate, below {threshold:g}: it "
        "had to answer in words",
    )
