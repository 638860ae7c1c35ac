"""The settings in force, one by one, for people: key, value and origin, without secrets."""

import re
from collections.abc import Iterator
from typing import Final

from dragoman.catalog import models
from dragoman.config import setting_values
from dragoman.config.sections import Config
from dragoman.config.values import is_secret_setting, toml

NAMED_SECTIONS: Final = ("upstreams", "mcp", "keys", "prices", "ray_deployments", "formats", "backends")
"""Sections of tables whose names the user chooses."""
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def setting_rows(config: Config, origin: dict[str, str], *, everything: bool) -> Iterator[dict[str, object]]:
    """Yields the settings, each with its `key`, `value` and `origin`; `hidden` in place of a value that is secret.

    Args:
        config: the settings.
        origin: where each setting that is not at its default comes from, by its key.
        everything: also the settings that are at their default.
    """
    rows = [*setting_values(config)]
    rows += ((f"model_aliases.{toml(alias)}", target) for alias, target in config.model_aliases.items())
    for key, written in rows:
        value = written or models.default().name if key == "embedded.model" else written
        if not (everything or key in origin or key.startswith("model_aliases.")):
            continue
        is_secret = is_secret_setting(key, value)
        place = origin.get(key.replace('"', ""), "default")
        content = (
            {"hidden": f"{len(value)} " if isinstance(value, tuple | dict) else ""} if is_secret else {"value": value}
        )
        yield {"key": key, **content, "origin": place}


def key_as_toml(key: str) -> str:
    """Returns the key as TOML: a name that the user chose is quoted where it must be, as in `prices."vllm/*"`."""
    section, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    is_plain = section not in NAMED_SECTIONS or _BARE_KEY.fullmatch(name)
    return key if is_plain else f"{section}.{toml(name)}.{field}"


def value_as_toml(value: object) -> str:
    """Returns a value as TOML, a table in one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml(name)} = {value_as_toml(each)}' for name, each in value.items())}}}"
    return toml(value)
