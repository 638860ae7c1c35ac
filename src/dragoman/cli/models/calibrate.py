"""`dragoman models calibrate`: measures when a model should answer in words instead of calling a tool."""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable

import msgspec

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.describe import calibration_text, why_never_asked
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.find_model import find_model, unknown_model
from dragoman.backends.embedded.local.measurements import CallCalibration, store_calibration
from dragoman.backends.embedded.local.model_facts import find_local_models, read_formats
from dragoman.cli._common import require_extras
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.models.loaded import load_settings
from dragoman.core.errors import ConfigError, quote


def run(args: argparse.Namespace) -> int:
    """Calibrates the model, stores the result, and prints it.

    Raises:
        ConfigError: it is unknown, or cannot be measured.
        DragomanError: it does not start.
    """
    config = load_settings(args)
    local = find_local_models(config.embedded)
    model = find_model(local, args.name)
    if model is None:
        raise unknown_model(local, args.name)
    own, format = local.settings_of(model, config.embedded), read_formats([model]).get(model.id)
    if why := why_never_asked(own, format) if format else "it writes no text":
        raise ConfigError(f"expected a model that can be asked whether to call a tool, got {quote(model.id)}: {why}")
    require_extras("embedded", doing="calibrating")
    line = ProgressLine(sys.stderr)
    with line.showing(f"loading {model.id}"):
        result = asyncio.run(_calibrate(model, own, line.print))
    store_calibration(model, result)
    if args.json:
        print(json.dumps(msgspec.to_builtins(result), indent=2))
    else:
        print(printable(f"{model.id}: {calibration_text(result)}"))
        print(f"in the catalogue: words_below = {result.words_below:g}")
    return 0


async def _calibrate(model: LocalModel, config: EmbeddedConfig, report: Callable[[str], None]) -> CallCalibration:
    from dragoman.backends.embedded.questions.calibration import calibrate
    from dragoman.cli.models.measure import unloaded_model

    engine_model = unloaded_model(model, config, report)
    try:
        await engine_model.start()
        return await calibrate(engine_model, report)
    finally:
        await engine_model.close()
