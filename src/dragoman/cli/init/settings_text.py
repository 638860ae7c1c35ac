"""Writes the settings as TOML: each below the first sentence of its description; those that are off begin with `#`."""

import re
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import get_type_hints

from dragoman import compose
from dragoman import config as settings
from dragoman.backends.http.config import HttpConfig
from dragoman.cli._terminal import one_line
from dragoman.cli.init.tables import SettingsTable
from dragoman.compose import embedded_weights
from dragoman.config.values import toml


def format_tables(tables: Sequence[SettingsTable], config_option: Sequence[str] = ()) -> str:
    """Returns the text of the settings file.

    Args:
        tables: the settings.
        config_option: `--config` and the file, if commands would not find it otherwise.
    """
    check = shlex.join(["dragoman", "serve", *config_option, "--print-config"])
    lines = [
        f"# Settings of Dragoman, written by `dragoman init` on {date.today().isoformat()}.",
        "# Lines such as #port = 8484 are settings that are off: remove the # to use them.",
        f"# After a change, check it with `{check}`, and restart the gateway.",
        "# `dragoman serve --print-config --all` prints all settings.",
    ]
    for table in tables:
        lines += ["", *_table_lines(table)]
    return "".join(f"{one_line(line)}\n" for line in lines)


def check_settings(text: str) -> settings.Config:
    """Returns the settings in a text, checked as `dragoman serve` checks them.

    Raises: ConfigError: they are invalid.
    """
    with tempfile.TemporaryDirectory(prefix="dragoman-init-") as folder:
        path = Path(folder) / "config.toml"
        path.write_text(text, encoding="utf-8")
        config, origin = settings.load(path, {}, {})
    if compose.serves_embedded(config, origin):
        embedded_weights.embedded_model_name(config.embedded)
    return config


def describe_setting(table: str, name: str) -> str:
    """Returns the first sentence of a setting's description."""
    is_upstream = table.startswith("upstreams.")
    description = _upstream_descriptions()[name] if is_upstream else _descriptions()[f"{table}.{name}"]
    return re.split(r"(?<=\.)\s+(?=[A-Z0-9`])", description)[0]


def _table_lines(table: SettingsTable) -> Iterator[str]:
    off = "" if table.is_active else "#"
    yield from (f"# {remark}" for remark in table.remarks)
    yield f"{off}[{table.name}]"
    for name, value in table.values.items():
        yield f"# {describe_setting(table.name, name)}"
        yield f"{off}{name} = {toml(value)}"


@cache
def _descriptions() -> dict[str, str]:
    return {key: description for key, _, _, description in settings.setting_docs()}


@cache
def _upstream_descriptions() -> dict[str, str]:
    hints = get_type_hints(HttpConfig, include_extras=True)
    return {name: hints[name].__metadata__[0].description for name in HttpConfig.__struct_fields__}
