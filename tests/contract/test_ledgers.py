"""What keys have used and reserved is counted the same in every store; different ledgers act as different machines."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import pytest

from dragoman.core.errors import BackendUnavailableError, BudgetExceededError, RateLimitError
from dragoman.usage_limits.budgets import MAX_AMOUNT, NANO, KeyBudget, Reserved, Spent
from dragoman.usage_limits.ledger import Ledger
from dragoman.usage_limits.ledgers.ledger_store import LedgerStore, UsageChanges
from dragoman.usage_limits.ledgers.postgresql_ledger import PostgresqlLedger
from dragoman.usage_limits.ledgers.redis_ledger import RedisLedger
from dragoman.usage_limits.ledgers.sqlite_ledger import SqliteLedger
from support import postgresql, redis_server

DAY = KeyBudget(is_money=True, is_month=False, limit=NANO)
MONTH_TOKENS = KeyBudget(is_money=False, is_month=True, limit=1_000)
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
NewStore: TypeAlias = Callable[[], LedgerStore]


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    if redis_server.PROGRAM is None:
        pytest.skip("redis-server is not installed")
    with redis_server.running() as server:
        yield server.url


@pytest.fixture(scope="module")
def new_database() -> Iterator[Callable[[], str]]:
    if postgresql.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with postgresql.running() as server:
        yield server.new_database


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Opens the same empty store again and again."""
    return store_opener(request, tmp_path)


@pytest.fixture(params=["redis", "postgresql"])
def new_remote_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Opens the same empty store of several machines again and again."""
    return store_opener(request, tmp_path)


def store_opener(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    match request.param:
        case "sqlite":
            return lambda: SqliteLedger(tmp_path / "state" / "usage.sqlite", NOON)
        case "redis":
            from redis import Redis

            redis_url: str = request.getfixturevalue("redis_url")
            with contextlib.closing(Redis.from_url(redis_url)) as client:
                client.flushdb()
            return lambda: RedisLedger(redis_url)
        case _:
            url: str = request.getfixturevalue("new_database")()
            return lambda: PostgresqlLedger(url)


@contextmanager
def ledgers(new_store: NewStore, number: int = 1, clock: Clock | None = None) -> Iterator[list[Ledger]]:
    with ExitStack() as stack:
        opened = [Ledger(new_store(), clock or Clock()) for _ in range(number)]
        for ledger in opened:
            stack.callback(ledger.close)
        yield opened


async def test_use_of_day_and_month_is_added_up(new_store: NewStore) -> None:
    clock = Clock()
    with ledgers(new_store, 1, clock) as [ledger]:
        ledger.settle("alice", 0, Spent(1, 100, 20, 30, 5))
        ledger.settle("bob", 0, Spent(1, 1, 0, 1, 1))
        ledger.settle("alice", 0, Spent(1, 100, 20, 30, 5))
        clock.now_s += 86_400
        assert await ledger.usage("alice") == (Spent(2, 200, 40, 60, 10), Spent(2, 200, 40, 60, 10), Reserved())


async def test_next_day_begins_at_midnight_utc(new_store: NewStore) -> None:
    clock = Clock()
    with ledgers(new_store, 1, clock) as [ledger]:
        number = await ledger.reserve("alice", (DAY,), Reserved(1, NANO))
        ledger.settle("alice", number, Spent(1, 5, 0, 5, NANO))
        with pytest.raises(BudgetExceededError, match=r"1 US dollars per day\) is used up; .* 2026-11-27T00:00Z") as it:
            await ledger.reserve("alice", (DAY,), Reserved())
        assert it.value.retry_after_s == 12 * 3600
        clock.now_s += 12 * 3600
        assert await ledger.reserve("alice", (DAY,), Reserved())
        usage = await ledger.usage("alice")
        assert (usage.day.requests, usage.month.requests) == (0, 1)


async def test_month_is_reported_before_the_day(new_store: NewStore) -> None:
    with ledgers(new_store) as [ledger]:
        number = await ledger.reserve("alice", (DAY, MONTH_TOKENS), Reserved(1, 1))
        ledger.settle("alice", number, Spent(1, 1_000, 0, 0, NANO))
        with pytest.raises(BudgetExceededError, match=r"1000 tokens per month\) .* 2026-12-01T00:00Z"):
            await ledger.reserve("alice", (DAY, MONTH_TOKENS), Reserved())


async def test_only_one_request_exceeds_the_budget(new_store: NewStore) -> None:
    """50 requests of 0.3 dollars in two processes, with a budget of one dollar."""
    with ledgers(new_store, 2) as both:
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


async def test_reservations_of_an_ended_process_no_longer_count(new_store: NewStore) -> None:
    with ledgers(new_store) as [ledger]:
        ended = Ledger(new_store(), Clock())
        await ended.reserve("alice", (DAY,), Reserved(1, NANO))
        with pytest.raises(RateLimitError, match="reserved by requests that run"):
            await ledger.reserve("alice", (DAY,), Reserved(1, NANO))
        ended.close()  # as the kernel releases the lock when a process is killed
        assert await ledger.reserve("alice", (DAY,), Reserved(1, NANO))


async def test_use_survives_a_restart(new_store: NewStore) -> None:
    with ledgers(new_store) as [first]:
        first.settle("alice", 0, Spent(1, 2, 3, 4, 5))
    with ledgers(new_store) as [second]:
        assert (await second.usage("alice")).month == Spent(1, 2, 3, 4, 5)


async def test_cancelled_request_reserves_nothing(new_store: NewStore) -> None:
    with ledgers(new_store) as [ledger]:
        task = asyncio.create_task(ledger.reserve("alice", (DAY,), Reserved(1, NANO)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ledger.usage("alice")  # the reservation is released after it was made
        assert (await ledger.usage("alice")).running == Reserved()


async def test_batch_is_written_once(new_remote_store: NewStore) -> None:
    store = new_remote_store()
    batch = UsageChanges()
    batch.add("alice", "2026-11-26", Spent(1, 2, 3, 4, 5))
    store.write(batch)
    store.write(batch)
    assert store.usage("alice", NOON).day == Spent(1, 2, 3, 4, 5)
    assert store.usage("alice", NOON).month == Spent(1, 2, 3, 4, 5)
    store.close()


async def test_reservation_is_made_once(new_remote_store: NewStore) -> None:
    store = new_remote_store()
    for _ in range(2):
        assert store.reserve("alice", (DAY,), Reserved(7, NANO), 5, NOON).has_room
    assert store.usage("alice", NOON).running == Reserved(7, NANO)
    store.close()


async def test_sums_stay_in_range(new_store: NewStore) -> None:
    store = new_store()
    batch = UsageChanges()
    for _ in range(10_000):
        batch.add("alice", "2026-11-26", Spent(1, MAX_AMOUNT, 0, 0, MAX_AMOUNT))
    for _ in range(4):
        store.write(batch)
        batch = UsageChanges(batch.spent)
    assert store.usage("alice", NOON).day.cost >= 1 << 61
    assert store.usage("alice", NOON).decide((DAY,), Reserved()).used_up == DAY
    store.close()


async def test_use_of_all_keys_is_read_while_a_gateway_runs(new_store: NewStore) -> None:
    with ledgers(new_store) as [ledger]:
        ledger.settle("alice", 0, Spent(1, 2, 3, 4, 5))
        await ledger.usage("alice")
        other = new_store()
        assert other.used_by_all(NOON) == {"alice": (Spent(1, 2, 3, 4, 5), Spent(1, 2, 3, 4, 5))}
        assert other.used_by_all(NOON + 86_400) == {"alice": (Spent(), Spent(1, 2, 3, 4, 5))}
        other.close()


async def test_leases_that_are_not_renewed_end(new_remote_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of no time, as that of a machine which lost its power; the next renewal makes it valid again."""
    store, other = new_remote_store(), new_remote_store()
    module = type(store).__module__
    if isinstance(store, RedisLedger):
        monkeypatch.setattr(f"{module}._LEASE_S", 0)
        assert store.reserve("alice", (DAY,), Reserved(1, NANO), 1, NOON).has_room
        monkeypatch.undo()
    else:
        assert store.reserve("alice", (DAY,), Reserved(1, NANO), 1, NOON).has_room
        assert isinstance(store, PostgresqlLedger)
        store._run(lambda connection: connection.execute("UPDATE dragoman_usage_owners SET expires_at = now()"))
    assert other.usage("alice", NOON).running == Reserved()
    store.renew()
    assert other.usage("alice", NOON).running == Reserved(1, NANO)
    assert not other.reserve("alice", (DAY,), Reserved(1, NANO), 2, NOON).has_room
    store.close()
    assert other.reserve("alice", (DAY,), Reserved(1, NANO), 2, NOON).has_room
    other.close()


async def test_outage_refuses_budgets_and_delays_use(
    outage: "tuple[LedgerStore, Callable[[], None], Callable[[], None]]",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A request with a budget gets an error; the use of other keys and of running requests is written later, once."""
    monkeypatch.setattr("dragoman.usage_limits.ledger._WRITE_RETRY_S", 0.0)
    store, begin, end = outage
    ledger = Ledger(store, Clock())
    number = await ledger.reserve("alice", (DAY,), Reserved(1, NANO // 10))
    begin()
    with pytest.raises(BackendUnavailableError, match=r"the use of API keys in state\.") as refused:
        await ledger.reserve("alice", (DAY,), Reserved(1, 1))
    assert refused.value.retry_after_s
    ledger.settle("alice", number, Spent(1, 2, 0, 3, NANO // 10))
    ledger.settle("bob", 0, Spent(1, 7, 0, 7, 7))
    ledger._write_unwritten()
    with pytest.raises(BackendUnavailableError):
        await ledger.usage("bob")
    assert "is written later" in caplog.text
    end()
    while ledger._writing or ledger._pending:
        await asyncio.sleep(0)  # a timer of the ledger writes them
    assert (await ledger.usage("alice"))[1:] == (Spent(1, 2, 0, 3, NANO // 10), Reserved())
    assert (await ledger.usage("bob")).day == Spent(1, 7, 0, 7, 7)
    ledger.close()


def test_redis_deletes_old_days(redis_url: str) -> None:
    for day, is_kept in (("2026-09-23", False), ("2026-09-25", True)):
        old, new = RedisLedger(redis_url), RedisLedger(redis_url)
        batch = UsageChanges()
        batch.add("alice", day, Spent(1))
        old.write(batch)
        new.write(batch_of("alice"))
        then = datetime.fromisoformat(f"{day}T12:00Z").timestamp()
        assert bool(new.usage("alice", then).day.requests) == is_kept
        assert new.usage("alice", then).month.requests
        old.close()
        new.close()


async def test_connection_that_the_server_has_closed_is_opened_again(new_database: Callable[[], str]) -> None:
    url = new_database()
    store = PostgresqlLedger(url)
    store.write(batch_of("alice"))
    _terminate(url)
    store.write(batch_of("alice"))
    assert store.usage("alice", NOON).day.requests == 2
    store.close()


async def test_server_that_does_not_respond_is_left(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server process of a connection stops; the next reservation is made in another one."""
    monkeypatch.setattr("dragoman.state.postgresql_connections.TIMEOUT_S", 0.3)
    url = new_database()
    store = PostgresqlLedger(url)
    assert store.reserve("alice", (DAY,), Reserved(1, 1), 1, NOON).has_room
    (frozen,) = store._run(lambda connection: connection.execute("SELECT pg_backend_pid()").fetchall())[0]
    os.kill(frozen, signal.SIGSTOP)
    try:
        with pytest.raises(BackendUnavailableError, match="StatementTimeoutError"):
            store.reserve("alice", (DAY,), Reserved(1, 1), 2, NOON)
        other = PostgresqlLedger(url)
        assert other.reserve("alice", (DAY,), Reserved(1, 1), 3, NOON).has_room
        other.close()
    finally:
        os.kill(frozen, signal.SIGCONT)
    store.close()


def batch_of(key: str) -> UsageChanges:
    batch = UsageChanges()
    batch.add(key, "2026-11-26", Spent(1, 2, 3, 4, 5))
    return batch


@pytest.fixture(params=["redis", "postgresql"])
def outage(request: pytest.FixtureRequest) -> Iterator[tuple[LedgerStore, Callable[[], None], Callable[[], None]]]:
    """A store, and functions that begin and end an outage of its server."""
    if request.param == "redis":
        if redis_server.PROGRAM is None:
            pytest.skip("redis-server is not installed")
        with redis_server.running() as server:
            yield RedisLedger(server.url), server.kill, server.start
        return
    url: str = request.getfixturevalue("new_database")()

    database = urlsplit(url).path[1:]

    def begin() -> None:
        _administer(url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        _terminate(url)

    yield PostgresqlLedger(url), begin, lambda: _administer(url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")


def _terminate(url: str) -> None:
    """Ends all connections with the database."""
    database = urlsplit(url).path[1:]
    _administer(url, f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{database}'")


def _administer(url: str, statement: str) -> None:
    from psycopg import connect

    with connect(urlsplit(url)._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]
