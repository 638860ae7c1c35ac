"""What a reload of the settings changes in a running gateway, and what waits for a restart."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.config.sections import Config
from dragoman.config.server import ServerConfig

LIVE_SECTIONS: Final = (
    "keys",
    "upstreams",
    "model_aliases",
    "routes",
    "formats",
    "guard",
    "examples",
    "tools",
    "mcp",
    "prices",
    "capture",
    "chat",
)
"""Sections that a reload applies. Settings that are neither here nor in `LIVE_SERVER_SETTINGS` wait for a restart."""
LIVE_SERVER_SETTINGS: Final = (
    "api_keys",
    "allowed_hosts",
    "max_body_bytes",
    "keepalive_interval_s",
    "delta_min_chars",
    "delta_max_chars",
    "max_status_delay_s",
    "write_timeout_s",
)
"""Settings of `[server]` that a reload applies."""


class Changes(NamedTuple):
    """The difference between the running settings and new ones."""

    config: Config
    """The settings after the reload: the new ones, but with the running values of those that wait for a restart."""
    changed: tuple[str, ...]
    """Keys of the settings that the reload changes."""
    need_restart: tuple[str, ...]
    """Keys of the settings that have changed and wait for a restart."""


def changes(running: Config, new: Config) -> Changes:
    """Returns what a reload does.

    Args:
        running: the settings in force.
        new: the settings that were read.
    """
    server = msgspec.structs.replace(running.server, **_live(new.server))
    sections = {name: getattr(new, name) for name in LIVE_SECTIONS}
    config = msgspec.structs.replace(running, server=server, **sections)
    return Changes(config, tuple(_differences("", running, config)), tuple(_differences("", config, new)))


def _live(server: ServerConfig) -> dict[str, Any]:
    return {name: getattr(server, name) for name in LIVE_SERVER_SETTINGS}


def _differences(key: str, old: object, new: object) -> Iterator[str]:
    """Yields the keys of all settings that differ; never their values, which may be secret."""
    if old == new:
        return
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        for name in old.__struct_fields__:
            yield from _differences(f"{key}.{name}".lstrip("."), getattr(old, name), getattr(new, name))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in {**old, **new}:
            if name not in old or name not in new:
                yield f"{key}.{name} ({'new' if name in new else 'removed'})"
            else:
                yield from _differences(f"{key}.{name}", old[name], new[name])
    else:
        yield key
