"""The settings with their origin, as `dragoman serve --print-config --all` prints them; secrets are not shown."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, get_type_hints

import msgspec

from dragoman import config as settings
from dragoman.catalog.servers import providers
from dragoman.config import Config
from dragoman.config.changes import changes
from dragoman.config.effective import NAMED_SECTIONS, key_as_toml, setting_rows, value_as_toml
from dragoman.console.upstreams.views import SettingList, SettingView
from dragoman.core.errors import ConfigError
from dragoman.server.reload.control import ConfigSource

_RELOADS: Final[Mapping[str, str]] = {
    "off": "A change of the file takes effect at the next start, as server.reload is off.",
    "signal": "A change of the file takes effect after `kill -HUP`, or POST /admin/reload.",
    "watch": "A change of the file takes effect within seconds.",
}


def list_settings(running: Config, source: ConfigSource | None) -> SettingList:
    """Returns the settings of the file, the environment and the command line as they are now. Reads the file.

    Args:
        running: the settings at the start of the gateway.
        source: where they come from; None: not known.
    """
    path = None if source is None else source.path()
    config, origin, problems = _load(running, source, path)
    descriptions, choices = _descriptions(config), _choices(config)
    rows = []
    for row in setting_rows(config, origin, everything=True):
        key = str(row["key"])
        is_secret = "hidden" in row
        value = "" if is_secret or row["value"] is None else value_as_toml(row["value"])
        place = str(row["origin"])
        rows.append(
            SettingView(
                key=key_as_toml(key),
                section=key.rpartition(".")[0],
                value=value,
                is_secret=is_secret,
                origin=place,
                is_default=place == "default",
                description=descriptions.get(_documented(key), ""),
                choices=choices.get(_documented(key), ()),
            )
        )
    reload = _RELOADS.get(running.server.reload, "A change of the file takes effect at the next start.")
    is_missing = source is not None and path is None
    return SettingList(
        config_path=str(path or ""),
        default_path=str(settings.default_path()) if is_missing else "",
        file_content=settings_file(rows) if is_missing else "",
        reload=reload,
        settings=rows,
        problems=problems,
    )


def settings_file(rows: Iterable[SettingView]) -> str:
    """Returns a settings file with the settings that are not at their default. In place of secrets it has a remark.

    Args:
        rows: all settings.
    """
    tables: dict[str, list[str]] = {}
    for row in rows:
        if not row.is_default:
            section = row.key.partition(".")[0]
            table = row.key.rpartition(".")[0] if section in NAMED_SECTIONS else section
            name = row.key[len(table) + 1 :]
            line = f"# {name} = (secret)" if row.is_secret else f"{name} = {row.value}"
            tables.setdefault(table, []).append(line)
    return "\n\n".join("\n".join([f"[{table}]", *lines]) for table, lines in tables.items())


def _load(running: Config, source: ConfigSource | None, path: Path | None) -> tuple[Config, dict[str, str], list[str]]:
    """Returns the settings with their origin, and what is wrong with them."""
    problems = [*settings.unknown_variables(os.environ)]
    if source is None:
        return running, {}, problems
    try:
        config, origin = settings.load(path, source.environ, source.flags)
    except ConfigError as error:
        return running, {}, [f"the settings at the start are shown, as the present ones are wrong: {error}", *problems]
    if loose := settings.readable_secrets(path, config):
        problems.append(loose)
    waiting = changes(running, config).need_restart
    if waiting:
        problems.append(f"changed since the start of the gateway, and in force after a restart: {', '.join(waiting)}")
    return config, origin, problems


def _descriptions(config: Config) -> dict[str, str]:
    """Returns what each setting means, by its key; of tables that users name, by `SECTION.*.KEY`."""
    found = {key: meaning for key, _, _, meaning in settings.setting_docs()}
    for section in NAMED_SECTIONS:
        kinds = {type(table) for table in getattr(config, section).values()}
        for kind in kinds - {dict}:
            found |= {key: meaning for key, _, _, meaning in settings.table_docs(f"{section}.*", kind)}
    return found


def _choices(config: Config) -> dict[str, tuple[str, ...]]:
    """Returns the allowed values of the settings that have some, by key as in `_descriptions`."""
    found: dict[str, tuple[str, ...]] = {}
    for section in msgspec.structs.fields(Config):
        if isinstance(section.default, msgspec.Struct):
            found |= _table_choices(section.name, section.type)
    for name in NAMED_SECTIONS:
        for kind in {type(table) for table in getattr(config, name).values()} - {dict}:
            found |= _table_choices(f"{name}.*", kind)
    return found | {"upstreams.*.provider": tuple(each.name for each in providers())}


def _table_choices(section: str, struct: type[msgspec.Struct]) -> Iterator[tuple[str, tuple[str, ...]]]:
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        key = f"{section}.{field.name}"
        if isinstance(field.default, msgspec.Struct):
            yield from _table_choices(key, type(field.default))
        elif choices := (hints[field.name].__metadata__[0].extra_json_schema or {}).get("enum"):
            yield key, tuple(choices)


def _documented(key: str) -> str:
    """Returns the key under which a setting is described."""
    section, _, rest = key.partition(".")
    return f"{section}.*.{rest.rpartition('.')[2]}" if section in NAMED_SECTIONS else key
