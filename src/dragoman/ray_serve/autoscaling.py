"""How many replicas a deployment needs: by its requests, and by the tokens that they have in flight."""

from collections.abc import Iterable
from typing import Any, Final

TOKENS: Final = "tokens_in_flight"
"""Name of the metric that replicas report."""


def replicas_needed(requests: float, target_requests: float, tokens: Iterable[float], target_tokens: int) -> float:
    """Returns the number of replicas, before limits and delays.

    Args:
        requests: requests of all replicas, with those that wait for one.
        target_requests: requests per replica.
        tokens: tokens in flight, of each replica.
        target_tokens: tokens in flight per replica.
    """
    return max(requests / target_requests, sum(tokens) / target_tokens)


class LoadPolicy:
    """An autoscaling policy of Ray Serve, which applies limits and delays itself."""

    def __init__(self, target_tokens: int) -> None:
        """`target_tokens`: tokens in flight per replica."""
        self._target = target_tokens

    def __call__(self, context: Any) -> tuple[float, dict[str, Any]]:
        """Returns the number of replicas, and a state that is not used.

        Args:
            context: Ray's `AutoscalingContext`.
        """
        tokens = (context.aggregated_metrics or {}).get(TOKENS, {}).values()
        target_requests = context.config.target_ongoing_requests
        return replicas_needed(context.total_num_requests, target_requests, tokens, self._target), {}
