"""Estimates token counts that a backend does not report, or reports too late.

    Start(input_tokens=0) … Finish              becomes    Start(input_tokens=31) … UsageUpdate, Notice, Finish

Some APIs report the size of the prompt at the beginning of a stream. Their clients get an estimate there, which the
backend's own count replaces as soon as it arrives. If none has arrived by the end, all counts are estimates, and a
warning reports that.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import (
    AnyEvent,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import Request, Usage
from dragoman.core.stage import EventStage
from dragoman.core.token_estimate import TokenEstimator

_GENERATED: Final = (TextDelta, ToolCallDelta, ReasoningDelta, RefusalDelta, ToolCallStart)
"""Events whose text the model has generated."""


class UsageFiller(EventStage):
    """Adds missing token counts to the events of one response."""

    handles = frozenset((*_GENERATED, UsageUpdate, Start, Finish))

    __slots__ = ("_early", "_estimate", "_prompt_tokens", "_reported", "_request", "_texts", "_vocabulary")

    def __init__(self, request: Request, vocabulary: TokenEstimator, *, early: bool) -> None:
        """`early`: the client reads the size of its prompt from the first event."""
        self._request, self._vocabulary, self._early = request, vocabulary, early
        self._estimate: int | None = None
        self._prompt_tokens = 0
        """Tokens of the prompt, as the backend reported them."""
        self._reported: Usage | None = None
        self._texts: list[str] = []

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events, each after those that it needs before it."""
        if len(events) == 1 and type(event := events[0]) is TextDelta:  # the most frequent case
            self._texts.append(event.text)
            return events
        out: list[AnyEvent] = []
        for event in events:
            if type(event) is UsageUpdate:
                usage = event.usage
                self._reported = usage if usage.input_tokens else replace(usage, input_tokens=self._prompt_tokens)
                event = UsageUpdate(self._reported)
            elif type(event) is Start:
                self._prompt_tokens = event.input_tokens
                if self._early and not event.input_tokens:
                    event = replace(event, input_tokens=self.estimate())
            elif type(event) is Finish:
                if self._reported is None or not self._reported.input_tokens:
                    out += self._estimated_usage()
            elif type(event) in self.handles:
                self._texts.append(_generated_text(event))
            out.append(event)
        return out

    def estimate(self) -> int:
        """Returns the estimated tokens of the prompt; the second call costs nothing."""
        if self._estimate is None:
            self._estimate = self._vocabulary.estimate_request(self._request)
        return self._estimate

    def _estimated_usage(self) -> tuple[AnyEvent, AnyEvent]:
        known = self._reported or Usage(output_tokens=self._vocabulary.estimate("".join(self._texts)))
        missing = "its counts" if self._reported is None else "the tokens of the prompt"
        usage = replace(known, input_tokens=self._prompt_tokens or self.estimate())
        return UsageUpdate(usage), Notice(
            "estimated_usage", f"the backend did not report {missing}; they are estimated"
        )


def _generated_text(event: AnyEvent) -> str:
    match event:
        case TextDelta(text) | ToolCallDelta(_, text) | ReasoningDelta(text) | RefusalDelta(text):
            return text
        case ToolCallStart(name=name):
            return name
        case _:
            return ""
