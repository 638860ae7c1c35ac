"""State in a Redis or Valkey server, which several machines share.

    dragoman:state:KIND:DIGEST      a value, which the server deletes after its time
    dragoman:log:NAME               a log, as a stream

Each operation is one round trip. TTLs are measured by the server's clock. Redis may lose values when it restarts or
evicts them: they count as not stored.

Source: https://redis.io/docs/latest/commands/ (2026-11): SET, MGET, PEXPIRE, XADD, XRANGE.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dragoman.core.errors import ConfigError
from dragoman.state.encoding import decoded, key_digest
from dragoman.state.outage import OutageBreaker
from dragoman.state.store import LOG_ENTRIES, LogPage, StateKind, StateStore

if TYPE_CHECKING:
    from redis.client import Pipeline

T = TypeVar("T")

_TIMEOUT_S: Final = 1.0
"""How long to wait for a connection, and for the response to a command."""
_IDLE_S: Final = 30
"""A connection that was not used for so long is checked first: routers forget idle connections."""
_PREFIX: Final = "dragoman:state:"
_LOG_PREFIX: Final = "dragoman:log:"
_PAGE: Final = 1000
_SAMPLE_KEYS: Final = 10_000
_SAMPLE_SIZES: Final = 100
_START: Final = b"0-0"
_REPLACE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""


class RedisStateStore(StateStore):
    """State in a server that several machines share; its own limit of memory holds, not those of the kinds."""

    does_io = True

    def __init__(self, url: str) -> None:
        """Args:
            url: The server, such as `redis://user:password@host:6379/0`. It is connected when it is used.

        Raises:
            ConfigError: The URL cannot be parsed.
        """
        from redis.exceptions import ConnectionError as LostError
        from redis.exceptions import InvalidResponse, RedisError
        from redis.exceptions import TimeoutError as SlowError

        self._client = _client(url)
        self._breaker = OutageBreaker(
            "the server of state.url",
            (LostError, InvalidResponse, OSError),
            (SlowError, TimeoutError),
            (RedisError,),
            on_outage=lambda: self._client.connection_pool.disconnect(inuse_connections=False),
        )

    def get_many(self, kind: StateKind[T], keys: Sequence[str]) -> list[T | None]:
        """See `StateStore`."""
        if not keys:
            return []
        names = [_name(kind, key) for key in keys]

        def read_and_renew(pipeline: "Pipeline") -> None:
            pipeline.mget(names)
            for name in names:
                pipeline.pexpire(name, _ttl_ms(kind))

        if kind.is_renewed:
            values, *_ = self._pipeline(read_and_renew)
        else:
            values = self._breaker.run(lambda: self._client.mget(names))
        return [decoded(kind, value) for value in values]

    def put(self, kind: StateKind[T], key: str, value: T, size_bytes: int, then_used: Sequence[str] = ()) -> None:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: Not used.
            then_used: Not used.
        """
        encoded = kind.encode(value)
        self._breaker.run(lambda: self._client.set(_name(kind, key), encoded, px=_ttl_ms(kind)))

    def put_if_absent(self, kind: StateKind[T], key: str, value: T, size_bytes: int) -> bool:
        """See `StateStore`.

        Args:
            kind: The kind of state.
            key: The key.
            value: The value.
            size_bytes: Not used.
        """
        name, encoded, ttl_ms = _name(kind, key), kind.encode(value), _ttl_ms(kind)

        def claim(pipeline: "Pipeline") -> None:
            pipeline.set(name, encoded, px=ttl_ms, nx=True)
            pipeline.get(name)

        is_stored, stored = self._pipeline(claim)
        if is_stored or stored is None or decoded(kind, stored) is not None:
            return bool(is_stored)
        replaced = self._breaker.run(lambda: self._client.eval(_REPLACE, 1, name, stored, encoded, ttl_ms))
        return bool(replaced)

    def delete(self, kind: StateKind[T], key: str) -> bool:
        """See `StateStore`."""
        return bool(self._breaker.run(lambda: self._client.delete(_name(kind, key))))

    def usage(self, kind: StateKind[T]) -> tuple[int, int]:
        """Returns an estimate from the first 10,000 keys of the server and the sizes of 100 values."""
        return self._breaker.run(lambda: self._usage(kind))

    def append(self, log: str, value: bytes) -> None:
        """See `StateStore`."""
        self._breaker.run(
            lambda: self._client.xadd(_log_name(log), {b"v": value}, maxlen=LOG_ENTRIES, approximate=True)
        )

    def read_log(self, log: str, position: str = "") -> LogPage:
        """See `StateStore`."""
        after, values = position.encode(), []
        while True:
            latest, entries = self._log_page(log, after)
            if not position:
                return LogPage(latest.decode(), [])
            if not entries and _order(latest) < _order(after) and after != _START:
                after = _START  # the server has lost the log, and its clock may differ
                continue
            values += [fields[b"v"] for _, fields in entries]
            after = entries[-1][0] if entries else after
            if len(entries) < _PAGE:
                return LogPage(after.decode(), values)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
        self._client.connection_pool.disconnect()

    def _log_page(self, log: str, after: bytes) -> tuple[bytes, list[Any]]:
        """Returns the id of the last entry, and the first entries after an id."""
        name = _log_name(log)

        def read(pipeline: "Pipeline") -> None:
            pipeline.xrevrange(name, count=1)
            pipeline.xrange(name, b"(" + (after or _START), count=_PAGE if after else 1)

        last, entries = self._pipeline(read)
        return (last[0][0] if last else _START), entries

    def _pipeline(self, fill: "Callable[[Pipeline], None]") -> list[Any]:
        """Returns the responses to the commands that `fill` adds, which are sent together."""

        def run() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipeline:
                fill(pipeline)
                # An error that the pipeline raises itself has the command in its text.
                results: list[Any] = pipeline.execute(raise_on_error=False)
            for result in results:
                if isinstance(result, Exception):
                    raise result
            return results

        return self._breaker.run(run)

    def _usage(self, kind: StateKind[T]) -> tuple[int, int]:
        prefix = f"{_PREFIX}{kind.name}:".encode()
        cursor, scanned, names = 0, 0, []
        while True:
            cursor, page = self._client.scan(cursor, count=_PAGE)
            scanned += len(page)
            names += [name for name in page if name.startswith(prefix)]
            if cursor == 0 or scanned >= _SAMPLE_KEYS:
                break
        names = list(dict.fromkeys(names))  # a key may be returned twice
        share = self._client.dbsize() / scanned if cursor else 1.0
        with self._client.pipeline(transaction=False) as pipeline:
            for name in names[:_SAMPLE_SIZES]:
                pipeline.strlen(name)
            sizes = pipeline.execute()
        entries = round(len(names) * share)
        return entries, round(sum(sizes) / len(sizes) * entries) if sizes else 0


def _client(url: str) -> Any:
    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    if url.startswith("valkey"):  # the same protocol
        url = url.replace("valkey", "redis", 1)
    try:
        client = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            # Not retried: a claim whose response was lost would find itself. A connection that the server has closed is
            # noticed before it is used.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            socket_keepalive=True,
            health_check_interval=_IDLE_S,
        )
        # Checks the options of the URL; nothing is connected.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except (ValueError, TypeError):  # its text may contain the password
        raise ConfigError(
            "expected a URL like redis://user:password@host:6379/0, got one that cannot be parsed; write special "
            "characters of the password as %XX - at state.url"
        ) from None
    return client


def _name(kind: StateKind[T], key: str) -> str:
    return f"{_PREFIX}{kind.name}:{key_digest(key).hex()}"


def _log_name(log: str) -> str:
    return _LOG_PREFIX + log


def _ttl_ms(kind: StateKind[T]) -> int:
    return max(1, round(kind.ttl_s * 1000))


def _order(id: bytes) -> tuple[int, ...]:
    return tuple(map(int, id.split(b"-")))
