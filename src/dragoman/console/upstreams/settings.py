"""The settings with their origin, as `dragoman serve --print-config --all` prints them; secrets are not shown."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dragoman import config as settings
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
    descriptions = _descriptions(config)
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
            )
        )
    reload = _RELOADS.get(running.server.reload, "A change of the file takes effect at the next start.")
    return SettingList(config_path=str(path or ""), reload=reload, settings=rows, problems=problems)


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


def _documented(key: str) -> str:
    """Returns the key under which a setting is described."""
    section, _, rest = key.partition(".")
    return f"{section}.*.{rest.rpartition('.')[2]}" if section in NAMED_SECTIONS else key
