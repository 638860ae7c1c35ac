"""What keys have used and reserved; different objects act as different processes."""

import asyncio
import math
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman.core.errors import BackendUnavailableError, BudgetExceededError, ConfigError, RateLimitError
from dragoman.usage_limits.budgets import MAX_AMOUNT, NANO, KeyBudget, Reserved, Spent, nano_usd, reset_time
from dragoman.usage_limits.ledger import Ledger
from dragoman.usage_limits.reading import read_usage

DAY = KeyBudget(is_money=True, is_month=False, limit=NANO)
MONTH_TOKENS = KeyBudget(is_money=False, is_month=True, limit=1_000)
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def ledgers(path: Path, number: int = 1, clock: Clock | None = None) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        opened = [Ledger(path / "state" / "usage.sqlite", clock or Clock()) for _ in range(number)]
        for ledger in opened:
            stack.callback(ledger.close)
        yield opened


async def test_use_of_day_and_month_is_added_up(tmp_path: Path) -> None:
    clock = Clock()
    with ledgers(tmp_path, 1, clock) as [ledger]:
        ledger.settle("alice", 0, Spent(1, 100, 20, 30, 5))
        ledger.settle("bob", 0, Spent(1, 1, 0, 1, 1))
        ledger.settle("alice", 0, Spent(1, 100, 20, 30, 5))
        clock.now_s += 86_400
        assert await ledger.usage("alice") == (Spent(2, 200, 40, 60, 10), Spent(2, 200, 40, 60, 10), Reserved())


async def test_next_day_begins_at_midnight_utc(tmp_path: Path) -> None:
    clock = Clock()
    with ledgers(tmp_path, 1, clock) as [ledger]:
        number = await ledger.reserve("alice", (DAY,), Reserved(1, NANO))
        ledger.settle("alice", number, Spent(1, 5, 0, 5, NANO))
        with pytest.raises(BudgetExceededError, match=r"1 US dollars per day\) is used up; .* 2026-11-27T00:00Z") as it:
            await ledger.reserve("alice", (DAY,), Reserved())
        assert it.value.retry_after_s == 12 * 3600
        clock.now_s += 12 * 3600
        assert await ledger.reserve("alice", (DAY,), Reserved())
        usage = await ledger.usage("alice")
        assert (usage.day.requests, usage.month.requests) == (0, 1)


async def test_month_is_reported_before_the_day(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        number = await ledger.reserve("alice", (DAY, MONTH_TOKENS), Reserved(1, 1))
        ledger.settle("alice", number, Spent(1, 1_000, 0, 0, NANO))
        with pytest.raises(BudgetExceededError, match=r"1000 tokens per month\) .* 2026-12-01T00:00Z"):
            await ledger.reserve("alice", (DAY, MONTH_TOKENS), Reserved())


def test_month_after_december() -> None:
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp()
    assert reset_time(december, is_month=True) == datetime(2027, 1, 1, tzinfo=UTC)
    assert reset_time(december, is_month=False) == datetime(2027, 1, 1, tzinfo=UTC)


async def test_only_one_request_exceeds_the_budget(tmp_path: Path) -> None:
    """50 requests of 0.3 dollars in two processes, with a budget of one dollar."""
    with ledgers(tmp_path, 2) as both:
        each = Reserved(10, 3 * NANO // 10)
        tries = await asyncio.gather(
            *(ledger.reserve("alice", (DAY,), each) for ledger in both for _ in range(25)), return_exceptions=True
        )
        numbers = [number for number in tries if isinstance(number, int)]
        assert len(numbers) == 3
        assert all(isinstance(refused, RateLimitError) for refused in tries if not isinstance(refused, int))
        for number in numbers:
            both[0].settle("alice", number, Spent(1, 5, 0, 5, each.cost))
        await both[0].usage("alice")  # waits for what this process has still to write
        assert (await both[1].usage("alice")).day.cost == 9 * NANO // 10
        last = await both[1].reserve("alice", (DAY,), each)  # it runs alone
        both[1].settle("alice", last, Spent(1, 5, 0, 5, each.cost))
        with pytest.raises(BudgetExceededError):
            await both[1].reserve("alice", (DAY,), each)


async def test_reservations_of_an_ended_process_no_longer_count(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        ended = Ledger(ledger._file.path, Clock())
        await ended.reserve("alice", (DAY,), Reserved(1, NANO))
        with pytest.raises(RateLimitError, match="reserved by requests that run"):
            await ledger.reserve("alice", (DAY,), Reserved(1, NANO))
        ended.close()  # as the kernel releases the lock when a process is killed
        assert await ledger.reserve("alice", (DAY,), Reserved(1, NANO))


async def test_new_process_releases_what_the_former_owner_of_its_number_reserved(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [first]:
        await first.reserve("alice", (DAY,), Reserved(7, 7))
    with ledgers(tmp_path) as [second]:
        assert (await second.usage("alice")).running == Reserved()


async def test_use_survives_a_restart(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [first]:
        first.settle("alice", 0, Spent(1, 2, 3, 4, 5))
    with ledgers(tmp_path) as [second]:
        assert (await second.usage("alice")).month == Spent(1, 2, 3, 4, 5)


async def test_cancelled_request_reserves_nothing(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        task = asyncio.create_task(ledger.reserve("alice", (DAY,), Reserved(1, NANO)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ledger.usage("alice")  # the reservation is released after it was made
        assert (await ledger.usage("alice")).running == Reserved()


async def test_locked_file_is_an_error_and_use_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.usage_limits.ledger_file._BUSY_TIMEOUT_S", 0.0)
    with ledgers(tmp_path) as [ledger]:
        number = await ledger.reserve("alice", (DAY,), Reserved(1, 1))
        other = sqlite3.connect(ledger._file.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ledger.settle("alice", number, Spent(1, 2, 0, 3, 4))
        with pytest.raises(BackendUnavailableError, match=r"usage.sqlite cannot be read or written"):
            await ledger.usage("alice")
        assert "is written later" in caplog.text
        other.execute("COMMIT")
        other.close()
        usage = await ledger.usage("alice")
        assert (usage.day, usage.running) == (Spent(1, 2, 0, 3, 4), Reserved())


async def test_use_is_read_while_a_gateway_runs(tmp_path: Path) -> None:
    assert read_usage(tmp_path / "absent.sqlite", NOON) == {}
    with ledgers(tmp_path) as [ledger]:
        ledger.settle("alice", 0, Spent(1, 2, 3, 4, 5))
        await ledger.usage("alice")
        path = ledger._file.path
        assert read_usage(path, NOON) == {"alice": (Spent(1, 2, 3, 4, 5), Spent(1, 2, 3, 4, 5))}
        assert read_usage(path, NOON + 86_400) == {"alice": (Spent(), Spent(1, 2, 3, 4, 5))}


@pytest.mark.parametrize("content", [b"not a database, but text that is long enough for a header" * 40])
def test_file_that_is_no_database_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "usage.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a writable SQLite file, got .* at limits.path"):
        Ledger(path)
    with pytest.raises(ConfigError, match=r"expected the SQLite file of the gateway, got .* at limits.path"):
        read_usage(path, NOON)


def test_file_of_a_newer_version_is_kept(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        path = ledger._file.path
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="of a newer Dragoman"):
        Ledger(path)


def test_file_is_for_this_user_only(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        assert ledger._file.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("usd", "nano"),
    [
        (0.0, 0),
        (1.0, NANO),
        (1e-12, 1),
        (-1.0, 0),
        (0.1, 100_000_000),
        (math.nan, 0),
        (math.inf, MAX_AMOUNT),
        (1e300, MAX_AMOUNT),
    ],
)
def test_costs_are_rounded_up(usd: float, nano: int) -> None:
    assert nano_usd(usd) == nano
