"""The keys file: `[keys.NAME]` tables in a file of their own, which `dragoman keys` edits.

It is next to the settings file, is private to its user, and contains digests instead of secrets. Gateways read it again
when it changes, so it is replaced instead of written to in place.
"""

import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.config.hints import hint_for_named
from dragoman.config.keys import KeyConfig, check_key
from dragoman.config.values import describe_error, toml
from dragoman.core.errors import ConfigError

NAME: Final = "keys.toml"
"""Name of the file, unless the settings have another."""


def writable_by_others(path: Path) -> str:
    """Returns a message if other users may change the keys file, else ""."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""
    return f"other users of this machine may change {path}: chmod 600 {path}" if mode & 0o022 else ""


def read_keys(path: Path, environ: Mapping[str, str]) -> dict[str, KeyConfig]:
    """Returns the keys in a keys file, by name.

    Args:
        path: The file.
        environ: The environment variables, with the secrets of `secret_env`.

    Raises:
        ConfigError: The file cannot be read, or a key is wrong.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the keys file {path}: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    if other := next((name for name in tables if name != "keys"), None):
        raise ConfigError(f"expected only tables [keys.NAME] in a keys file, got '{other}' - in {path}")
    keys = tables.get("keys", {})
    if not isinstance(keys, dict):
        raise ConfigError(f"expected tables [keys.NAME], got keys = {toml(keys)} - in {path}")
    return {name: read_key(name, table, path, environ) for name, table in keys.items()}


def keys_path(setting: str, settings_path: Path) -> str:
    """Returns the path of the keys file.

    Args:
        setting: The setting `server.keys_path`; a relative path belongs to the folder of the settings file.
        settings_path: The settings file, which need not exist.
    """
    return str(settings_path.parent / (Path(setting).expanduser() if setting else NAME))


def read_key(name: str, table: object, path: Path | None, environ: Mapping[str, str]) -> KeyConfig:
    """Returns the settings in a table `[keys.NAME]`.

    Args:
        name: The name of the key.
        table: The table.
        path: The file that contains it, for errors.
        environ: The environment variables.

    Raises:
        ConfigError: A setting is unknown or wrong.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"expected a table, [keys.{name}], got another value - at keys.{name}, from {path}")
    known = KeyConfig.__struct_fields__
    if unknown := next((setting for setting in table if setting not in known), None):
        hint = hint_for_named(unknown, known, "a key")
        raise ConfigError(f"unknown setting 'keys.{name}.{unknown}'{hint} - in {path}")
    try:
        config = msgspec.convert(_with_text_dates(table), KeyConfig, strict=False)
        check_key(name, config, environ)
    except msgspec.ValidationError as error:
        message = str(error).replace("`$.", f"`$.{name}.")
        origin = {f"keys.{name}.{setting}": str(path) for setting in table}
        described = describe_error(message, {name: table}, origin, "keys.").replace("`$.", "`keys.")
        raise ConfigError(described if str(path) in described else f"{described}, from {path}") from None
    except ConfigError as error:
        raise ConfigError(f"{error.message}, from {path}") from None
    return config


def _with_text_dates(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table with text in place of TOML's own dates and times."""
    previous = table.get("previous")
    texts: dict[str, Any] = {name: value.isoformat() for name, value in table.items() if isinstance(value, date)}
    if isinstance(previous, list):
        texts["previous"] = [_with_text_dates(each) if isinstance(each, dict) else each for each in previous]
    return {**table, **texts}
