"""The number of replicas by requests and tokens."""

from types import SimpleNamespace

import pytest

from dragoman.ray_serve.autoscaling import TOKENS, LoadPolicy, replicas_needed


@pytest.mark.parametrize(
    ("requests", "tokens", "needed"),
    [(0, [], 0), (4, [], 2), (2, [1000, 2000], 3), (8, [1000], 4)],
)
def test_larger_need_counts(requests: float, tokens: list[float], needed: float) -> None:
    assert replicas_needed(requests, 2, tokens, 1000) == needed


def test_policy_reads_metrics_of_replicas() -> None:
    context = SimpleNamespace(
        aggregated_metrics={TOKENS: {"one": 4000.0, "two": 1000.0}},
        total_num_requests=2,
        config=SimpleNamespace(target_ongoing_requests=2),
    )
    assert LoadPolicy(2500)(context) == (2, {})
    context.aggregated_metrics = None
    assert LoadPolicy(2500)(context) == (1, {})
