"""Builds the limits of keys that the settings name."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from dragoman import config as settings
from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.usage_limits.admission import UsageLimits
from dragoman.usage_limits.budgets import Spent
from dragoman.usage_limits.concurrency import LocalRequests, MappedRequests, RunningRequests
from dragoman.usage_limits.ledger import Ledger
from dragoman.usage_limits.ledgers.ledger_store import LedgerStore
from dragoman.usage_limits.ledgers.sqlite_ledger import SqliteLedger, read_usage
from dragoman.usage_limits.windows import RateWindows

_FILE_NAME: Final = "usage.sqlite"
_TIMEOUT_S: Final = 2.0
"""How long a request waits for Redis, before its process counts by itself."""
_PREFIX: Final = "dragoman"


def usage_limits(config: settings.Config, shared_dir: Path | None) -> UsageLimits:
    """Returns the limits of keys. If there are no keys, nothing is opened before the first request that has one.

    Args:
        config: The settings.
        shared_dir: The private folder of several gateway processes; None: there is one.

    Raises:
        ConfigError: A package is missing, or the file with what each key has used cannot be opened.
    """
    check_limits(config)
    url = config.limits.url or config.state.url
    has_keys = config.keys or (config.server.keys_path and Path(config.server.keys_path).exists())
    ledger = Ledger(_ledger_store(config)) if has_keys else None
    return UsageLimits(
        lambda: ledger or Ledger(_ledger_store(config)),
        lambda: _windows(url, shared_dir),
        lambda: _running(url, shared_dir),
        config.limits.reserved_output_tokens,
    )


def check_limits(config: settings.Config) -> None:
    """Checks that what the limits of keys need is installed.

    Raises:
        ConfigError: It is not.
    """
    has_url = config.limits.url or config.state.url
    if has_url or any(key.requests_per_minute or key.tokens_per_minute for key in config.keys.values()):
        _require_extra()


def used_by_all(config: settings.Config) -> Mapping[str, tuple[Spent, Spent]]:
    """Returns what each key has used today and in this month, also while gateways run.

    Raises:
        ConfigError: The file cannot be read, or a package is missing.
        BackendUnavailableError: The server cannot be used.
    """
    store = _shared_ledger(config)
    if store is None:
        return read_usage(_usage_path(config), time.time())
    try:
        return store.used_by_all(time.time())
    finally:
        store.close()


def _ledger_store(config: settings.Config) -> LedgerStore:
    """Returns the store of what keys have used."""
    return _shared_ledger(config) or SqliteLedger(_usage_path(config), time.time())


def _shared_ledger(config: settings.Config) -> LedgerStore | None:
    """Returns the store that several machines share; None: each one has a file."""
    if config.limits.path:
        return None
    if config.state.database_url:
        with _requiring("psycopg", "state.database_url"):
            from dragoman.usage_limits.ledgers.postgresql_ledger import PostgresqlLedger

            return PostgresqlLedger(config.state.database_url)
    if config.state.url:
        with _requiring("redis", "state.url"):
            from dragoman.usage_limits.ledgers.redis_ledger import RedisLedger

            return RedisLedger(_redis_url(config.state.url))
    return None


@contextmanager
def _requiring(package: str, setting: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        command = extras.install_command("state")
        raise ConfigError(f"{setting} needs the package {package}, which is not installed: {command}") from None


def _usage_path(config: settings.Config) -> Path:
    if config.limits.path:
        return Path(config.limits.path).expanduser()
    import platformdirs

    return platformdirs.user_state_path("dragoman", appauthor=False) / _FILE_NAME


def _windows(url: str, shared_dir: Path | None) -> RateWindows:
    _require_extra()
    if url:
        from limits.aio.storage import RedisStorage
        from redis.exceptions import RedisError

        client = _redis(url)
        options: dict[str, Any] = {"connection_pool": client.connection_pool}
        storage = RedisStorage(f"async+{_redis_url(url)}", implementation="redispy", key_prefix=_PREFIX, **options)
        return RateWindows(storage, (RedisError, OSError), client.aclose)
    if shared_dir is not None:
        from dragoman.usage_limits.mapped_storage import MappedStorage

        return RateWindows(MappedStorage(shared_dir / "windows"))
    from limits.aio.storage import MemoryStorage

    return RateWindows(MemoryStorage())


def _running(url: str, shared_dir: Path | None) -> RunningRequests:
    if url:
        _require_extra()
        from redis.exceptions import RedisError

        from dragoman.usage_limits.redis_requests import RedisRequests

        return RedisRequests(_redis(url), (RedisError, OSError))
    return LocalRequests() if shared_dir is None else MappedRequests(shared_dir / "running")


def _redis(url: str) -> Any:
    """Returns a client, which connects when it is used; closing it closes its connections."""
    from redis.asyncio import Redis

    return Redis.from_url(_redis_url(url), socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)


def _redis_url(url: str) -> str:
    """Returns the URL for a client of Redis, which speaks the protocol of Valkey too."""
    return url.replace("valkey", "redis", 1) if url.startswith("valkey") else url


def _require_extra() -> None:
    if extras.missing_extras("limits"):
        raise ConfigError(f"limits of keys need more than is installed: {extras.install_command('limits')}")
