"""`dragoman models list`: the models of this machine."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.backends.embedded.local.describe import model_row
from dragoman.backends.embedded.local.model_facts import (
    LocalModels,
    find_local_models,
    read_formats,
)
from dragoman.backends.embedded.weights import format_size
from dragoman.cli._common import waiting
from dragoman.cli._terminal import printable
from dragoman.cli.models.loaded import find_states, load_settings
from dragoman.cli.models.table import format_table

_NOT_LOADED = "-"


def run(args: argparse.Namespace) -> int:
    """Prints the models.

    Raises: ConfigError: the settings are wrong.
    """
    config = load_settings(args)
    with waiting("looking for models"):
        local = find_local_models(config.embedded)
        formats = read_formats(local.models.values())
        states = find_states(args, config)
    rows = [
        model_row(model, local.settings_of(model, config.embedded), formats.get(model.id))
        | {"default": model.id == local.default, "state": (states or {}).get(model.id, {}).get("state")}
        for model in local.models.values()
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
    elif rows:
        print(printable(format_list(rows, has_gateway=states is not None)))
    else:
        print("no model is on this machine; to download one: dragoman pull", file=sys.stderr)
    return 0


def format_list(rows: Sequence[Mapping[str, Any]], *, has_gateway: bool) -> str:
    """Returns the table; with the column STATE if a gateway runs."""
    head = ["NAME", "SIZE", "ORIGIN", "CONTEXT", "CALL FORMAT", "VISION", *(["STATE"] if has_gateway else [])]
    cells = [
        [
            f"{row['name']} (default)" if row["default"] else row["name"],
            format_size(row["size_bytes"]),
            row["origin"],
            f"{row['context_window']:,}",
            row["call_format"] or f"({row['kind']})",
            "yes" if row["vision"] else "no",
            *([row["state"] or _NOT_LOADED] if has_gateway else []),
        ]
        for row in rows
    ]
    return format_table(head, cells)


def list_names(local: LocalModels) -> list[str]:
    """Returns all names and aliases, for completion."""
    return [name for model in local.models.values() for name in (model.id, *model.aliases)]
