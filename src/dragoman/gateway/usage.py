"""The counts of tokens that a backend does not tell, or tells too late: estimated.

    Start(input_tokens=0) … Finish              becomes    Start(input_tokens=31) … UsageUpdate, Notice, Finish

A client of an API that tells the size of the prompt where a stream begins gets an estimate there, which is replaced by
the backend's own count as soon as that comes. Where none has come by the end, the whole is an estimate, and a warning
says so.
"""

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
from dragoman.core.token_estimate import TokenEstimator

_WORDS: Final = (TextDelta, ToolCallDelta, ReasoningDelta, RefusalDelta)


class UsageFiller:
    """Passes one answer's events on, and adds what is missing."""

    __slots__ = ("_early", "_estimate", "_known", "_request", "_said", "_told", "_vocabulary")

    def __init__(self, request: Request, vocabulary: TokenEstimator, *, early: bool) -> None:
        """`early`: the client reads the size of its prompt off the first event."""
        self._request, self._vocabulary, self._early = request, vocabulary, early
        self._estimate: int | None = None
        self._known = 0
        """Tokens of the prompt, as the backend itself told them."""
        self._told: Usage | None = None
        self._said: list[str] = []

    def pass_on(self, event: AnyEvent) -> tuple[AnyEvent, ...]:
        """The event, with what it needs before it."""
        if isinstance(event, _WORDS):  # all but a few events of an answer: a `match` on all kinds takes longer
            self._said.append(event.text)
            return (event,)
        match event:
            case ToolCallStart(name=name):
                self._said.append(name)
            case UsageUpdate(usage):
                self._told = usage if usage.input_tokens else replace(usage, input_tokens=self._known)
                return (UsageUpdate(self._told),)
            case Start(input_tokens=tokens):
                self._known = tokens
                if self._early and not tokens:
                    return (replace(event, input_tokens=self.estimate()),)
            case Finish() if self._told is None or not self._told.input_tokens:
                return (*self._estimated(), event)
            case _:
                pass
        return (event,)

    def needs_estimate(self, event: AnyEvent) -> bool:
        """Whether `pass_on` has to estimate the prompt for this event, which takes long for a large request."""
        match event:
            case Start(input_tokens=tokens):
                return self._early and not tokens
            case Finish():
                return not self._known and (self._told is None or not self._told.input_tokens)
            case _:
                return False

    def estimate(self) -> int:
        """Returns the estimated tokens of the prompt; the second call is free. May be called in a thread."""
        if self._estimate is None:
            self._estimate = self._vocabulary.estimate_request(self._request)
        return self._estimate

    def _estimated(self) -> tuple[AnyEvent, AnyEvent]:
        told = self._told or Usage(output_tokens=self._vocabulary.estimate("".join(self._said)))
        missing = "its counts" if self._told is None else "the tokens of the prompt"
        usage = replace(told, input_tokens=self._known or self.estimate())
        return UsageUpdate(usage), Notice("estimated_usage", f"the backend did not tell {missing}; they are estimated")
