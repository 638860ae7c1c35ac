"""Builds the limits of keys that the settings name."""

from pathlib import Path
from typing import Any, Final

from dragoman import config as settings
from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.usage_limits.admission import UsageLimits
from dragoman.usage_limits.concurrency import LocalRequests, MappedRequests, RunningRequests
from dragoman.usage_limits.ledger import Ledger
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
    url = config.limits.url
    has_keys = config.keys or (config.server.keys_path and Path(config.server.keys_path).exists())
    ledger = Ledger(usage_path(config)) if has_keys else None
    return UsageLimits(
        lambda: ledger or Ledger(usage_path(config)),
        lambda: _windows(url, shared_dir),
        lambda: _running(url, shared_dir),
        config.limits.reserved_output_tokens,
    )


def check_limits(config: settings.Config) -> None:
    """Checks that what the limits of keys need is installed.

    Raises:
        ConfigError: It is not.
    """
    if config.limits.url or any(key.requests_per_minute or key.tokens_per_minute for key in config.keys.values()):
        _require_extra()


def usage_path(config: settings.Config) -> Path:
    """Returns the path of the file with what each key has used."""
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
