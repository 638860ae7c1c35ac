"""What keys have used in PostgreSQL, for several machines.

    dragoman_usage             what a key has used in a period, `2026-11-26` or `2026-11`
    dragoman_usage_reserved    what running requests reserve
    dragoman_usage_owners      gateway processes with a lease; what others have reserved does not count
    dragoman_usage_batches     changes that are written, so that one whose response was lost is not written twice

A reservation takes two round trips: one waits for the lock of the key and reads, the other one adds the reservation.
Leases are measured by the server's clock, periods by that of the gateway.

Source: https://www.postgresql.org/docs/current/explicit-locking.html,
https://www.psycopg.org/psycopg3/docs/advanced/pipeline.html (2026-11).
"""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg

from dragoman.core.errors import BackendUnavailableError
from dragoman.state.fair_places import NoFreeConnectionError
from dragoman.state.outage import OutageBreaker
from dragoman.state.postgresql_connections import BoundedConnection, Connections, StatementTimeoutError
from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent
from dragoman.usage_limits.ledgers.ledger_store import MAX_SUM, Decision, KeyUsage, LedgerStore, UsageChanges

T = TypeVar("T")
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_LEASE_S: Final = 60
_RENEW_S: Final = 20.0
_TABLES_LOCK: Final = 0x647261676F6D7573
_AMOUNTS: Final = ", ".join(Spent._fields)
_TABLES: Final = (
    f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})",
    f"""CREATE TABLE IF NOT EXISTS dragoman_usage (key text NOT NULL, period text NOT NULL,
        {", ".join(f"{name} bigint NOT NULL" for name in Spent._fields)}, PRIMARY KEY (key, period))""",
    """CREATE TABLE IF NOT EXISTS dragoman_usage_reserved (number bigint PRIMARY KEY, key text NOT NULL,
        owner text NOT NULL, tokens bigint NOT NULL, cost bigint NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS dragoman_usage_reserved_by_key ON dragoman_usage_reserved (key)",
    "CREATE TABLE IF NOT EXISTS dragoman_usage_owners (owner text PRIMARY KEY, expires_at timestamptz NOT NULL)",
    """CREATE TABLE IF NOT EXISTS dragoman_usage_batches (id text PRIMARY KEY,
        written_at timestamptz NOT NULL DEFAULT now())""",
    "DELETE FROM dragoman_usage WHERE length(period) = 10 AND period < (current_date - 63)::text",
    "DELETE FROM dragoman_usage WHERE length(period) = 7 AND period < left((current_date - 801)::text, 7)",
    "DELETE FROM dragoman_usage_batches WHERE written_at < now() - interval '1 day'",
    """DELETE FROM dragoman_usage_reserved WHERE owner NOT IN
        (SELECT owner FROM dragoman_usage_owners WHERE expires_at > now() - interval '1 hour')""",
    "DELETE FROM dragoman_usage_owners WHERE expires_at < now() - interval '1 hour'",
)
# A machine that stops in a transaction does not keep the lock of a key.
_BEGIN: Final = (
    "BEGIN",
    "SELECT set_config('lock_timeout', '2s', true), set_config('idle_in_transaction_session_timeout', '2s', true)",
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('dragoman_usage ' || %s, 0))"
# One statement, so that a batch is seen whole or not at all.
_READ: Final = f"""
    SELECT period, {_AMOUNTS} FROM dragoman_usage WHERE key = %s AND period IN (%s, %s)
    UNION ALL
    SELECT '', 0, least(coalesce(sum(tokens), 0), {MAX_SUM})::bigint, 0, 0,
        least(coalesce(sum(cost), 0), {MAX_SUM})::bigint
    FROM dragoman_usage_reserved JOIN dragoman_usage_owners USING (owner)
    WHERE key = %s AND number <> %s AND expires_at > clock_timestamp()
"""
_RENEW: Final = f"""
    INSERT INTO dragoman_usage_owners VALUES (%s, clock_timestamp() + interval '{_LEASE_S} s')
    ON CONFLICT (owner) DO UPDATE SET expires_at = excluded.expires_at
"""
_END: Final = """
    WITH released AS (DELETE FROM dragoman_usage_reserved WHERE owner = %s)
    DELETE FROM dragoman_usage_owners WHERE owner = %s
"""
_RESERVE: Final = "INSERT INTO dragoman_usage_reserved VALUES (%s, %s, %s, %s, %s) ON CONFLICT (number) DO NOTHING"
_WRITE: Final = f"""
    WITH fresh AS (INSERT INTO dragoman_usage_batches (id) VALUES (%s) ON CONFLICT (id) DO NOTHING RETURNING id),
        released AS (DELETE FROM dragoman_usage_reserved WHERE number = ANY(%s::bigint[]))
    INSERT INTO dragoman_usage (key, period, {_AMOUNTS})
    SELECT added.* FROM unnest(%s::text[], %s::text[], {", ".join("%s::bigint[]" for _ in Spent._fields)}) AS added
    WHERE EXISTS (SELECT FROM fresh) ORDER BY 1, 2
    ON CONFLICT (key, period) DO UPDATE SET {
    ", ".join(
        f"{name} = least(dragoman_usage.{name}::numeric + excluded.{name}, {MAX_SUM})::bigint" for name in Spent._fields
    )
}
"""


class PostgresqlLedger(LedgerStore):
    """The use of all keys in a database, which is connected when it is used."""

    renew_s = _RENEW_S

    def __init__(self, url: str) -> None:
        """Args:
            url: The database, such as `postgresql://user:password@host/name`.

        Raises:
            ConfigError: The URL cannot be parsed.
        """
        self._owner, self._has_tables = secrets.token_hex(12), False
        self._connections = Connections(url, "state.database_url")
        self._breaker = OutageBreaker(
            "the use of API keys in state.database_url",
            (psycopg.OperationalError, psycopg.InterfaceError, OSError),
            (StatementTimeoutError,),
            (psycopg.Error, NoFreeConnectionError),
            on_outage=self._connections.end_waiting,
        )

    def reserve(
        self, key: str, limits: tuple[KeyBudget, ...], request: Reserved, number: int, now_s: float
    ) -> Decision:
        """See `LedgerStore`.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.
            number: The number of the reservation.
            now_s: Seconds since 1970.
        """

        def run(connection: Connection) -> Decision:
            with connection.pipeline():
                for statement in _BEGIN:
                    connection.execute(statement)
                connection.execute(_LOCK, (key,))
                rows = connection.execute(_READ, self._read_arguments(key, number, now_s))
                decision = _usage(rows.fetchall(), now_s).decide(limits, request)
                if decision.has_room:
                    connection.execute(_RESERVE, (number, key, self._owner, request.tokens, request.cost))
                    connection.execute(_RENEW, (self._owner,))
                connection.execute("COMMIT" if decision.has_room else "ROLLBACK")
            return decision

        return self._run(run)

    def write(self, batch: UsageChanges) -> None:
        """See `LedgerStore`."""
        added = [(key, period, *spent) for (key, day), spent in batch.spent.items() for period in (day, day[:7])]
        columns = [list(column) for column in zip(*added, strict=True)] or [[] for _ in range(2 + len(Spent._fields))]
        released = [number for _, number in batch.released]
        self._run(lambda connection: connection.execute(_WRITE, (batch.id, released, *columns)))

    def usage(self, key: str, now_s: float) -> KeyUsage:
        """See `LedgerStore`."""
        arguments = self._read_arguments(key, 0, now_s)
        return _usage(self._run(lambda connection: connection.execute(_READ, arguments).fetchall()), now_s)

    def used_by_all(self, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
        """See `LedgerStore`."""
        day, month = budgets.periods(now_s)
        query = f"SELECT key, period, {_AMOUNTS} FROM dragoman_usage WHERE period IN (%s, %s)"
        rows = self._run(lambda connection: connection.execute(query, (day, month)).fetchall())
        used = {(key, period): Spent(*amounts) for key, period, *amounts in rows}
        return {key: (used.get((key, day), Spent()), spent) for (key, period), spent in used.items() if period == month}

    def renew(self) -> None:
        """See `LedgerStore`."""
        self._run(lambda connection: connection.execute(_RENEW, (self._owner,)))

    def close(self) -> None:
        """Ends the lease, and closes the connection."""
        with suppress(BackendUnavailableError):
            if self._has_tables:
                self._run(lambda connection: connection.execute(_END, (self._owner, self._owner)))
        self._connections.close_idle()

    def _read_arguments(self, key: str, number: int, now_s: float) -> tuple[object, ...]:
        return (key, *budgets.periods(now_s), key, number)

    def _run(self, operation: Callable[[Connection], T]) -> T:
        """Returns what the operation returns.

        Raises:
            BackendUnavailableError: The database cannot be used.
        """

        def run(connection: BoundedConnection) -> T:
            if not self._has_tables:
                with connection.transaction():
                    for statement in _TABLES:
                        connection.execute(statement)
                self._has_tables = True
            return operation(connection)

        return self._breaker.run(lambda: self._connections.run(run))


def _usage(rows: list[tuple[Any, ...]], now_s: float) -> KeyUsage:
    by_period = {period: Spent(*amounts) for period, *amounts in rows}
    day, month = (by_period.get(period, Spent()) for period in budgets.periods(now_s))
    return KeyUsage(day, month, Reserved(by_period[""].input_tokens, by_period[""].cost))
