"""Connections to PostgreSQL that are kept open, each for one thread at a time.

psycopg has no time limit for a statement whose server does not respond; here one has, so that a request never waits
longer. A connection that the server has closed is noticed before it is used.
"""

import selectors
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready

from dragoman.core.errors import ConfigError
from dragoman.state.fair_places import FairPlaces, NoFreeConnectionError

T = TypeVar("T")

TIMEOUT_S: Final = 2
"""How long to wait for a connection, and for the result of a statement."""
_MAX_CONNECTIONS: Final = 4
"""A statement takes a fraction of a millisecond, and a server has 100 connections for all replicas by default."""
_SELECTOR: Final[type[selectors.BaseSelector]] = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""One that needs no file of its own."""
_OPTIONS: Final[dict[str, Any]] = {
    "application_name": "dragoman",
    "connect_timeout": TIMEOUT_S,
    "tcp_user_timeout": TIMEOUT_S * 1000,
    "keepalives_idle": 30,
}


class StatementTimeoutError(Exception):
    """The server has not responded within the time limit."""


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose statements have a time limit."""

    def wait(self, gen: Any, *_: Any, **__: Any) -> Any:
        """Resumes the generator each time the socket is ready, until it has the result.

        Raises:
            StatementTimeoutError: The server has not responded in time; the connection is closed, because its state is
                unknown.
        """
        try:
            return _run(gen, self.pgconn.socket, time.monotonic() + TIMEOUT_S)
        except StatementTimeoutError:
            self.pgconn.finish()
            raise


class Connections:
    """The connections of a process to one database."""

    def __init__(self, url: str, setting: str) -> None:
        """Args:
            url: The database; it may contain a password.
            setting: What it is named by, for the error.

        Raises:
            ConfigError: The URL cannot be parsed.
        """
        try:
            self._url = conninfo.make_conninfo(url, **{**_OPTIONS, **_own_options(url)})
        except psycopg.Error:  # its text may contain the password
            raise ConfigError(
                "expected a URL like postgresql://user:password@host/name, got one that cannot be parsed; write "
                f"special characters of the password as %XX - at {setting}"
            ) from None
        self._idle: list[BoundedConnection] = []
        self._outages = 0
        self._places = FairPlaces(_MAX_CONNECTIONS)

    def run(self, operation: Callable[[BoundedConnection], T]) -> T:
        """Returns what `operation` returns for a connection, in which each statement is a transaction.

        Raises:
            psycopg.Error: The database cannot be used, or has refused the statement.
            StatementTimeoutError: It does not respond.
            NoFreeConnectionError: All connections are in use.
        """
        outages = self._outages
        if not self._places.take(TIMEOUT_S):
            raise NoFreeConnectionError
        try:
            if outages != self._outages:  # waiting for the server too would exceed the time limit
                raise StatementTimeoutError("the server did not respond to the calls before")
            connection = self._open()
            try:
                return operation(connection)
            finally:
                if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()
        finally:
            self._places.release()

    def end_waiting(self) -> None:
        """Closes idle connections, and ends the calls that wait for one: the server does not respond."""
        self._outages += 1
        self.close_idle()

    def close_idle(self) -> None:
        """Closes the connections that are not in use."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _open(self) -> BoundedConnection:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if _is_usable(connection):
                    return connection
                connection.close()
        # Not prepared, because statements of a pooler such as PgBouncer reach many connections of the server.
        return BoundedConnection.connect(self._url, autocommit=True, prepare_threshold=None)


def _own_options(url: str) -> dict[str, Any]:
    """Returns the options of the URL, which take precedence over ours."""
    return {name: value for name, value in conninfo.conninfo_to_dict(url).items() if name in _OPTIONS}


def _is_usable(connection: BoundedConnection) -> bool:
    try:
        for _ in range(2):  # after a message about its end comes the end
            connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return not connection.closed


def _run(gen: Generator[Any, Any, T], socket: int, deadline_s: float) -> T:
    """Returns the result of a generator of psycopg, whose own loop has no time limit in its older versions."""
    with _SELECTOR() as selector:
        try:
            selector.register(socket, needed := next(gen))
            while ready := selector.select(max(0.0, deadline_s - time.monotonic())):
                next_needed = gen.send(Ready(ready[0][1]))
                if next_needed != needed:
                    selector.modify(socket, needed := next_needed)
        except StopIteration as end:
            result: T = end.value
            return result
        gen.close()
        raise StatementTimeoutError("the server has not responded in time")
