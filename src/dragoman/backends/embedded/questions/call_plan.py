"""Several calls in one response: the model states how many it needs, and writes as many.

A small model makes one call of several and stops. It knows the number, though: asked for it before the response, by one
token, Qwen2.5-Coder 1.5B counts right for most prompts (docs/accuracy.md). For two or more, the response is constrained
to calls of that number, in the model's own format, and the number ends its prompt:

    Number of function calls needed: 2
"""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.engine_output import Output, Progress
from dragoman.backends.embedded.questions.ask import CompletesPrompts, WeighedAnswers, ask
from dragoman.catalog.models import ModelProfile
from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError, QueueFullError, loggable_message
from dragoman.core.events import Notice
from dragoman.core.messages import Request, Text, ToolResult, Usage

log = logging.getLogger("dragoman.embedded")

_QUESTION: Final = "Number of function calls needed: "
_COUNTS: Final = tuple("0123456789")
_SEVERAL: Final = _COUNTS[2:]
WHEN_FORCED: Final = 0.5
"""Probability of several calls from which they are planned, for a model without a measured one."""


class CallPlan(NamedTuple):
    """The answer of the model, and its cost."""

    calls: int = 0
    """Number of calls to write; 0: the response is not constrained to any number."""
    question: WeighedAnswers | None = None
    """None: the model was not asked."""

    @property
    def opening(self) -> str:
        """Returns the end of the prompt, with which the model continues."""
        return f"{_QUESTION}{self.calls}\n"

    @property
    def notice(self) -> Notice:
        """Returns the warning that the response is constrained to this number of calls."""
        return Notice(
            "calls_planned", f"the model needs {self.calls} calls by its own count, and had to write {self.calls}"
        )

    def add_cost(self, usage: Usage, prompt_tokens: int) -> Usage:
        """Returns the usage of the response with that of the question.

        The prompt counts once, although the engine gets it twice, because the response finds it in the cache.

        Args:
            usage: usage of the response.
            prompt_tokens: tokens of the prompt of its first completion.
        """
        if self.question is None:
            return usage
        _, read, cached, written = self.question
        return msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens + max(read - prompt_tokens, 0),
            cached_input_tokens=max(usage.cached_input_tokens - (read - cached), 0),
            output_tokens=usage.output_tokens + written,
        )


NO_PLAN: Final = CallPlan()


def several_calls_from(config: EmbeddedConfig, profile: ModelProfile | None) -> float:
    """Returns the probability of several calls from which they are planned; 0: never.

    Args:
        config: the settings. A user's llama-server may lack the grammars that a number of calls needs.
        profile: the model's row of the catalogue; None: it is not in it.
    """
    measured = profile.several_calls_from if profile else 0.0
    by_setting = {"off": 0.0, "auto": measured, "on": measured or WHEN_FORCED}
    return by_setting[config.plan_calls] if config.engine == "xllamacpp" else 0.0


def may_plan(request: Request) -> bool:
    """Returns whether the user has just asked for something, and several calls are allowed; with steps, one is."""
    choice = request.tool_choice
    if choice.mode not in ("auto", "required") or not choice.parallel_tool_calls:
        return False
    if request.response_schema or request.steps is not None:
        return False
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "user" or any(isinstance(part, ToolResult) for part in last.parts):
        return False
    return any(isinstance(part, Text) for part in last.parts)


async def plan_calls(
    engine: CompletesPrompts,
    body: Mapping[str, Any],
    threshold: float,
    report: Callable[[int, int], None],
    context: ExchangeContext,
) -> CallPlan:
    """Asks the model how many calls it needs.

    Args:
        engine: the engine.
        body: the engine's request for the response.
        threshold: probability of two or more calls from which they are planned.
        report: receives the prompt's tokens, and how many of them were read.
        context: the exchange, for the time in which the prompt was read.

    Raises:
        QueueFullError: all slots and the queue are taken. After other errors there is no plan.
    """
    try:
        question = await ask(_ReportingEngine(engine, report, context), body, _QUESTION, _COUNTS)
    except QueueFullError:
        raise
    except DragomanError as error:
        log.warning("the number of calls was not asked for: %s", loggable_message(error))
        return NO_PLAN
    several = {count: question.probabilities[count] for count in _SEVERAL}
    if sum(several.values()) < threshold:
        return CallPlan(0, question)
    return CallPlan(int(max(several, key=several.__getitem__)), question)


class _ReportingEngine:
    """Reports the progress of a prompt that a question reads for the response."""

    def __init__(self, engine: CompletesPrompts, report: Callable[[int, int], None], context: ExchangeContext) -> None:
        self._engine, self._report, self._attempts = engine, report, context.attempts

    async def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion."""
        asked_s, reading_s = time.perf_counter(), 0.0
        async with aclosing(self._engine.complete(body, admitted=admitted)) as outputs:
            async for output in outputs:
                if isinstance(output, Progress):
                    if not reading_s:  # the first report precedes the work
                        reading_s = time.perf_counter()
                        self._attempts.queue(reading_s - asked_s)
                    self._report(output.total, output.done)
                yield output
        if reading_s:
            self._attempts.prompt_s = (self._attempts.prompt_s or 0.0) + time.perf_counter() - reading_s
