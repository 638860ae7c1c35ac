"""Counts what the rounds of a response have used, and decides whether a limit allows another.

Token counts that a backend does not report are estimated. So is the cost, by the price of the model; a round of a model
whose price is not known is taken to cost as much per token as the other rounds.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from dragoman.catalog import tokenizers
from dragoman.core.messages import Request, Usage
from dragoman.gateway.vendor_tools.model_round import ModelRound
from dragoman.gateway.vendor_tools.tool_runs import ToolRunSettings

Priced: TypeAlias = Callable[[Usage], Usage]
"""Returns the usage of a round with its cost, if that is known."""


class SpentLimits:
    """What all rounds of a response have used so far, those of a re-ask included."""

    def __init__(self) -> None:
        self._rounds = self._tokens = self._priced_tokens = 0
        self._cost_usd = 0.0

    def add_round(self, turn: ModelRound, request: Request, priced: Priced) -> None:
        """Adds a round that has ended.

        Args:
            turn: The round.
            request: The request that the backend got.
            priced: Adds the cost.
        """
        usage = priced(_usage(turn, request))
        tokens = usage.input_tokens + usage.output_tokens
        self._rounds += 1
        self._tokens += tokens
        if usage.cost_usd is not None:
            self._cost_usd += usage.cost_usd
            self._priced_tokens += tokens

    def reached(self, settings: ToolRunSettings, left_s: float) -> str:
        """Returns the limit that allows no further round; "" if there is none.

        Args:
            settings: The limits.
            left_s: Time that is left for calls.
        """
        if self._rounds >= settings.max_rounds:
            return f"{settings.max_rounds} rounds"
        if left_s <= 0:
            return f"{settings.timeout_s:g} s"
        if 0 < settings.max_tokens <= self._tokens:
            return f"{settings.max_tokens} tokens"
        if 0 < settings.max_cost_usd <= self._estimated_cost_usd():
            return f"{settings.max_cost_usd:g} US dollars"
        return ""

    def _estimated_cost_usd(self) -> float:
        if not self._priced_tokens:
            return self._cost_usd
        return self._cost_usd * self._tokens / self._priced_tokens


def _usage(turn: ModelRound, request: Request) -> Usage:
    """Returns the usage of one round, estimated where the backend reports none."""
    usage = turn.usage or Usage()
    vocabulary = tokenizers.find(request.model)
    if not usage.input_tokens:
        tokens = turn.prompt_tokens or vocabulary.estimate_request(request)
        usage = replace(usage, input_tokens=tokens)
    if not usage.output_tokens:
        usage = replace(usage, output_tokens=sum(map(vocabulary.estimate_part, turn.parts())))
    return usage
