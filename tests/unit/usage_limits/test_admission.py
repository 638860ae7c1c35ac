"""What a request reserves of the budgets of its key."""

from typing import Any, cast

import pytest

from dragoman.config.keys import KeyConfig
from dragoman.usage_limits.admission import Estimate, UsageLimits
from dragoman.usage_limits.budgets import Reserved

pytestmark = pytest.mark.asyncio


class Recorder:
    """A ledger that records what is reserved."""

    def __init__(self) -> None:
        self.reserved: list[Reserved] = []

    async def reserve(self, key: str, budgets: object, reserved: Reserved) -> int:
        self.reserved.append(reserved)
        return 1


@pytest.mark.parametrize(("output", "reserved"), [(20, 100 + 3 * 20), (None, 100 + 3 * 50)])
async def test_budget_is_reserved_for_all_samples(output: int | None, reserved: int) -> None:
    ledger, unused = Recorder(), cast("Any", None)
    limits = UsageLimits(lambda: cast("Any", ledger), unused, unused, reserved_output_tokens=50)
    admission = limits.begin("alice", KeyConfig(secret="secret-of-alice", budget_tokens_per_day=1000), None)
    await admission.admit(Estimate(100, output, samples=3))
    assert [each.tokens for each in ledger.reserved] == [reserved]
