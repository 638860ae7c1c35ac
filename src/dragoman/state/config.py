"""Settings of shared state: the section `[state]`."""

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import parse_qs, urlsplit

import msgspec

from dragoman.core.errors import ConfigError
from dragoman.schema.setting import setting


class StateConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the replicas of a gateway keep the state that they share (docs/replicas.md)."""

    url: Annotated[
        str,
        setting(
            "Redis or Valkey server for state that replicas share, such as `redis://host:6379/0`; empty: each machine "
            "has its own."
        ),
    ] = ""
    database_url: Annotated[
        str,
        setting(
            "`postgresql://user:password@host/name` for state whose loss would be noticed, such as stored responses; "
            "empty: it is kept at `url`."
        ),
    ] = ""


_SCHEMES: Final = {"url": ("redis", "rediss", "valkey", "valkeys"), "database_url": ("postgresql",)}
_EXAMPLES: Final = {"url": "redis://127.0.0.1:6379/0", "database_url": "postgresql://user:password@127.0.0.1/dragoman"}


def check_state(config: StateConfig) -> None:
    """Checks the settings of shared state.

    Raises:
        ConfigError: A URL is not that of a supported server. It is not quoted, because it may contain a password.
    """
    for name, schemes in _SCHEMES.items():
        url = getattr(config, name)
        if url and (found := _problem(url, schemes)):
            raise ConfigError(f"expected a URL like {_EXAMPLES[name]}, got {found} - at state.{name}")


def _problem(url: str, schemes: Sequence[str]) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "one that cannot be parsed; write special characters of a password as %XX"
    if parts.scheme not in schemes:
        return f"one of {parts.scheme or 'no scheme'}"
    is_socket = parts.scheme == "postgresql" and "host" in parse_qs(parts.query)
    return "" if parts.hostname or is_socket else "one without a host"
