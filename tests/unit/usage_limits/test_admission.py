"""What a request reserves of the budgets of its key."""

import asyncio
from typing import Any, cast

import pytest
from limits.aio.storage import MemoryStorage

from dragoman.config.keys import KeyConfig
from dragoman.core.messages import Usage
from dragoman.usage_limits.admission import Estimate, UsageLimits, Used
from dragoman.usage_limits.budgets import Reserved
from dragoman.usage_limits.windows import RateWindows

pytestmark = pytest.mark.asyncio


class Recorder:
    """A ledger that records what is reserved."""

    def __init__(self) -> None:
        self.reserved: list[Reserved] = []

    async def reserve(self, key: str, budgets: object, reserved: Reserved) -> int:
        self.reserved.append(reserved)
        return 1

    def settle(self, key: str, reservation: int, spent: object) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize(("output", "reserved"), [(20, 100 + 3 * 20), (None, 100 + 3 * 50)])
async def test_budget_is_reserved_for_all_samples(output: int | None, reserved: int) -> None:
    ledger, unused = Recorder(), cast("Any", None)
    limits = UsageLimits(lambda: cast("Any", ledger), unused, unused, reserved_output_tokens=50)
    admission = limits.begin("alice", KeyConfig(secret="secret-of-alice", budget_tokens_per_day=1000), None)
    await admission.admit(Estimate(100, output, samples=3))
    assert [each.tokens for each in ledger.reserved] == [reserved]


async def test_samples_are_reserved_of_the_tokens_of_a_minute_once_they_are_needed() -> None:
    unused, windows = cast("Any", None), RateWindows(MemoryStorage())
    limits = UsageLimits(lambda: cast("Any", Recorder()), lambda: windows, unused, 50, now_s=lambda: 0.0)
    settings = KeyConfig(secret="secret-of-alice", tokens_per_minute=500)
    first, second = (limits.begin("alice", settings, None) for _ in range(2))

    async def used() -> float:
        return (await limits.windows_of("alice", settings))["tokens"].used

    await first.admit(Estimate(100, 200))
    assert await used() == 150
    assert await first.extend(2)
    assert await used() == 450
    assert not await first.extend(1)  # 600 of 500
    assert not await second.extend(1)  # before it is admitted
    first.settle(Used(Usage(310, 70), "a", "m", 1.0))
    await limits.close()
    assert await used() == 380
    assert not await first.extend(1)


async def test_key_without_a_limit_of_tokens_may_have_samples() -> None:
    unused = cast("Any", None)
    limits = UsageLimits(lambda: cast("Any", Recorder()), unused, unused, 50)
    admission = limits.begin("alice", KeyConfig(secret="secret-of-alice"), None)
    await admission.admit(Estimate())
    assert await admission.extend(2)


class Waiting(MemoryStorage):
    """A storage whose response arrives after what it counts, as that of a server."""

    def __init__(self) -> None:
        super().__init__()
        self.counted, self.may_answer = asyncio.Event(), asyncio.Event()

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        is_counted = await super().acquire_sliding_window_entry(key, limit, expiry, amount)
        self.counted.set()
        await self.may_answer.wait()
        return is_counted


async def used_of(limits: UsageLimits, settings: KeyConfig) -> dict[str, float]:
    return {kind: state.used for kind, state in (await limits.windows_of("alice", settings)).items()}


@pytest.mark.parametrize("settled_first", [True, False])
async def test_tokens_of_cancelled_samples_are_given_back(settled_first: bool) -> None:
    unused, storage = cast("Any", None), Waiting()
    limits = UsageLimits(lambda: cast("Any", Recorder()), lambda: RateWindows(storage), unused, 50, now_s=lambda: 0.0)
    settings = KeyConfig(secret="secret-of-alice", tokens_per_minute=500)
    admission = limits.begin("alice", settings, None)
    storage.may_answer.set()
    await admission.admit(Estimate(100, 50))
    storage.may_answer.clear()
    storage.counted.clear()
    extending = asyncio.create_task(admission.extend(1))
    await storage.counted.wait()
    extending.cancel()
    await asyncio.wait([extending])
    assert extending.cancelled()
    if not settled_first:
        storage.may_answer.set()
        assert await admission.extend(1), "the storage answers in order"
    admission.settle(None)
    storage.may_answer.set()
    await limits.close()
    assert await used_of(limits, settings) == {"tokens": 0}


@pytest.mark.parametrize("kind", ["requests", "tokens"])
async def test_what_was_counted_for_a_cancelled_request_is_given_back(kind: str) -> None:
    unused, storage = cast("Any", None), Waiting()
    limits = UsageLimits(lambda: cast("Any", Recorder()), lambda: RateWindows(storage), unused, 50, now_s=lambda: 0.0)
    settings = KeyConfig(secret="secret-of-alice", **{f"{kind}_per_minute": 500})
    admitting = asyncio.create_task(limits.begin("alice", settings, None).admit(Estimate(100, 50)))
    await storage.counted.wait()
    admitting.cancel()
    await asyncio.wait([admitting])
    storage.may_answer.set()
    await limits.close()
    assert await used_of(limits, settings) == {kind: 0}
