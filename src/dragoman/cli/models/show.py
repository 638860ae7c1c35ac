"""`dragoman models show`: everything about one model of this machine."""

import argparse
import asyncio
import json
import sys

import msgspec

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.describe import describe, fact_lines
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.find_model import find_model, unknown_model
from dragoman.backends.embedded.local.measurements import ModelMeasurement, load_measurement, store_measurement
from dragoman.backends.embedded.local.model_facts import find_local_models, read_formats
from dragoman.cli._common import require_extras
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.models.loaded import find_states, load_settings
from dragoman.cli.models.table import format_facts


def run(args: argparse.Namespace) -> int:
    """Describes the model, and measures it first with `--measure`.

    Raises:
        ConfigError: it is unknown, or cannot be measured.
        DragomanError: it does not start.
    """
    config = load_settings(args)
    local = find_local_models(config.embedded)
    model = find_model(local, args.name)
    if model is None:
        raise unknown_model(local, args.name)
    own = local.settings_of(model, config.embedded)
    if args.measure:
        store_measurement(model, _measure(model, own))
    format = read_formats([model]).get(model.id)
    row = {
        **describe(model, own, format),
        "default": model.id == local.default,
        "state": (find_states(args, config) or {}).get(model.id, {}).get("state"),
    }
    measurement = load_measurement(model)
    if args.json:
        print(json.dumps(row | {"measured": measurement and msgspec.to_builtins(measurement)}, indent=2))
    else:
        print(printable(f"{model.id}\n{format_facts(fact_lines(row, own, format, measurement))}"))
    return 0


def _measure(model: LocalModel, config: EmbeddedConfig) -> ModelMeasurement:
    require_extras("embedded", doing="measuring")
    from dragoman.cli.models.measure import measure

    line = ProgressLine(sys.stderr)
    with line.showing(f"loading {model.id}"):
        return asyncio.run(measure(model, config, line.print))
