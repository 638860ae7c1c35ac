"""The cost of a response that two models have written: the tokens of each, at its own price."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, UsageUpdate
from dragoman.core.messages import Usage, add_usage
from dragoman.core.stage import EventStage
from dragoman.prices.price_book import PriceBook


class CostSum(EventStage):
    """Sets the cost of the usage once another model was asked. A model whose price is not known adds nothing."""

    handles = frozenset((UsageUpdate,))

    def __init__(self, prices: PriceBook | None, upstream: str, model: str) -> None:
        """
        Args:
            prices: Prices of models; None: no price is known.
            upstream: The name of the backend that answers first.
            model: Its own name of the model.
        """
        self._prices, self._upstream, self._model = prices, upstream, model
        self._began_s, self._first_s = time.monotonic(), 0.0
        self._first: Usage | None = None
        self._others: list[float] = []
        self._other_usage = Usage()
        self._was_other_asked = False

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events, with the cost of all models."""
        if self._was_other_asked:
            return [UsageUpdate(self._with_cost(each.usage)) if type(each) is UsageUpdate else each for each in events]
        self._first = next((each.usage for each in reversed(events) if type(each) is UsageUpdate), self._first)
        return events

    def begin(self) -> None:
        """Another model is asked; what was used so far is the first one's."""
        self._was_other_asked, self._first_s = True, time.monotonic() - self._began_s

    def add(self, upstream: str, model: str, usage: Usage, seconds: float) -> None:
        """Adds what a backend has used since.

        Args:
            upstream: The name of the backend.
            model: Its own name of the model.
            usage: The tokens.
            seconds: The time that they took.
        """
        self._other_usage = add_usage(self._other_usage, usage)
        cost_usd = self._cost_usd(upstream, model, usage, seconds)
        self._others += [] if cost_usd is None else [cost_usd]

    def _cost_usd(self, upstream: str, model: str, usage: Usage, seconds: float) -> float | None:
        if self._prices is None:
            return usage.cost_usd
        return self._prices.cost_usd(upstream, model, usage, seconds)

    def _with_cost(self, usage: Usage) -> Usage:
        first = _difference(usage, self._other_usage) if self._first is None else self._first
        own = self._cost_usd(self._upstream, self._model, first, self._first_s)
        known = [*self._others, *([] if own is None else [own])]
        return replace(usage, cost_usd=sum(known)) if known else usage


def _difference(all: Usage, others: Usage) -> Usage:
    """Returns the tokens of a model that did not report its own."""
    return Usage(
        max(0, all.input_tokens - others.input_tokens),
        max(0, all.output_tokens - others.output_tokens),
        max(0, all.cached_input_tokens - others.cached_input_tokens),
    )
