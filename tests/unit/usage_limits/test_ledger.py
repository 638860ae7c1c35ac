"""What keys have used and reserved in an SQLite file; tests of all stores are in tests/contract/test_ledgers.py."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.usage_limits.budgets import MAX_AMOUNT, NANO, KeyBudget, Reserved, Spent, nano_usd, reset_time
from dragoman.usage_limits.ledger import Ledger
from dragoman.usage_limits.ledgers.sqlite_ledger import SqliteLedger, read_usage

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
        opened = [Ledger(SqliteLedger(path / "state" / "usage.sqlite", NOON), clock or Clock()) for _ in range(number)]
        for ledger in opened:
            stack.callback(ledger.close)
        yield opened


def test_month_after_december() -> None:
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp()
    assert reset_time(december, is_month=True) == datetime(2027, 1, 1, tzinfo=UTC)
    assert reset_time(december, is_month=False) == datetime(2027, 1, 1, tzinfo=UTC)


def file_of(ledger: Ledger) -> Path:
    assert isinstance(ledger._store, SqliteLedger)
    return ledger._store.path


async def test_new_process_releases_what_the_former_owner_of_its_number_reserved(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [first]:
        await first.reserve("alice", (DAY,), Reserved(7, 7))
    with ledgers(tmp_path) as [second]:
        assert (await second.usage("alice")).running == Reserved()


async def test_locked_file_is_an_error_and_use_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dragoman.usage_limits.ledgers.sqlite_ledger._BUSY_TIMEOUT_S", 0.0)
    with ledgers(tmp_path) as [ledger]:
        number = await ledger.reserve("alice", (DAY,), Reserved(1, 1))
        other = sqlite3.connect(file_of(ledger), isolation_level=None)
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
        path = file_of(ledger)
        assert read_usage(path, NOON) == {"alice": (Spent(1, 2, 3, 4, 5), Spent(1, 2, 3, 4, 5))}
        assert read_usage(path, NOON + 86_400) == {"alice": (Spent(), Spent(1, 2, 3, 4, 5))}


@pytest.mark.parametrize("content", [b"not a database, but text that is long enough for a header" * 40])
def test_file_that_is_no_database_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "usage.sqlite"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a writable SQLite file, got .* at limits.path"):
        SqliteLedger(path, NOON)
    with pytest.raises(ConfigError, match=r"expected the SQLite file of the gateway, got .* at limits.path"):
        read_usage(path, NOON)


def test_file_of_a_newer_version_is_kept(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        path = file_of(ledger)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigError, match="of a newer Dragoman"):
        SqliteLedger(path, NOON)


def test_file_is_for_this_user_only(tmp_path: Path) -> None:
    with ledgers(tmp_path) as [ledger]:
        assert file_of(ledger).stat().st_mode & 0o077 == 0


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
