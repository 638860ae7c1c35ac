"""The tables of `PostgresqlStateStore`, and their migrations.

Alembic is not used: the values are opaque bytes, so these tables rarely change, and the database of the records, which
may be the same one, has Alembic's only table of revisions.
"""

import logging
from typing import Any, Final

log = logging.getLogger("dragoman.state")

_LOCK: Final = 0x647261676F6D7374
"""Number of the lock that a migration takes: `dragomst`."""
_MIGRATIONS: Final = (
    """
    CREATE TABLE dragoman_state (
        kind text NOT NULL,
        key bytea NOT NULL,
        value bytea NOT NULL,
        size_bytes bigint NOT NULL,
        expires timestamptz NOT NULL,
        PRIMARY KEY (kind, key)
    );
    CREATE INDEX dragoman_state_expires ON dragoman_state (expires);
    CREATE TABLE dragoman_state_logs (log text PRIMARY KEY, latest bigint NOT NULL);
    CREATE TABLE dragoman_state_log_entries (
        log text NOT NULL, number bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (log, number)
    );
    """,
)
"""Never change one that was released: add another one. Older replicas use the new tables for a while."""
_VERSION: Final = len(_MIGRATIONS)


class StateTablesError(Exception):
    """The tables are of a newer version of Dragoman."""


def migrate(connection: Any) -> None:
    """Creates or updates the tables; several replicas may do so at the same time.

    Args:
        connection: A connection of psycopg in which each statement is a transaction.

    Raises:
        StateTablesError: The tables are of a newer version.
        psycopg.Error: The database cannot be used.
    """
    (exists,) = connection.execute("SELECT to_regclass('dragoman_state_version') IS NOT NULL").fetchone()
    if exists and _version(connection) == _VERSION:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # Not looked up again: the server remembers for this connection which tables were missing.
        connection.execute("CREATE TABLE IF NOT EXISTS dragoman_state_version (version integer NOT NULL)")
        for script in _MIGRATIONS[_version(connection) :]:
            connection.execute(script)
        connection.execute("DELETE FROM dragoman_state_version")
        connection.execute("INSERT INTO dragoman_state_version VALUES (%s)", (_VERSION,))


def _version(connection: Any) -> int:
    """Returns the version of the tables; 0: there are none."""
    row = connection.execute("SELECT version FROM dragoman_state_version").fetchone()
    version: int = row[0] if row else 0
    if version > _VERSION:
        log.error(
            "expected tables of version %d or older in state.database_url, got %d, which a newer version of Dragoman "
            "has written; update Dragoman",
            _VERSION,
            version,
        )
        raise StateTablesError
    return version
