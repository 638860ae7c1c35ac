"""`dragoman models show`: everything about one model of this machine."""

import argparse
import asyncio
import json
import sys
from typing import Any

import msgspec

from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.memory import MB
from dragoman.backends.embedded.local.model_facts import (
    FormatFacts,
    find_local_models,
    needed_bytes,
    profile_of,
    read_formats,
)
from dragoman.backends.embedded.weights import format_size
from dragoman.backends.embedded.weights.job import SPLIT_FILE
from dragoman.cli._common import require_extras
from dragoman.cli._terminal import ProgressLine, printable
from dragoman.cli.models.find_model import find_model, unknown_model
from dragoman.cli.models.listing import model_row
from dragoman.cli.models.loaded import find_states, load_settings
from dragoman.cli.models.measurements import ModelMeasurement, load_measurement, store_measurement
from dragoman.cli.models.small_check import TASKS
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
        **model_row(model, own, format),
        "default": model.id == local.default,
        "state": (find_states(args, config) or {}).get(model.id, {}).get("state"),
        **_contents(model),
        "template": format.has_template if format else None,
        "call_format_found_by": format.by if format else None,
        "call_format_reason": format.why if format else None,
        "memory_mb": round(needed_bytes(model, own) / MB),
    }
    measurement = load_measurement(model)
    if args.json:
        print(json.dumps(row | {"measured": measurement and msgspec.to_builtins(measurement)}, indent=2))
    else:
        print(printable(f"{model.id}\n{format_facts(_facts(row, own, format, measurement))}"))
    return 0


def _measure(model: LocalModel, config: EmbeddedConfig) -> ModelMeasurement:
    require_extras("embedded", doing="measuring")
    from dragoman.cli.models.measure import measure

    line = ProgressLine(sys.stderr)
    with line.showing(f"loading {model.id}"):
        return asyncio.run(measure(model, config, line.print))


def _contents(model: LocalModel) -> dict[str, Any]:
    part = SPLIT_FILE.search(model.path.stem)
    paths = [model.path]
    if part is not None:
        stem = model.path.stem[: part.start()]
        count = int(part["count"])
        paths = [model.path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    found = [gguf.contents(path) for path in paths]
    profile = profile_of(model)
    return {
        "architecture": found[0].architecture,
        "parameters": sum(each.parameters for each in found),
        "quantization": found[0].quantization or None,
        "licence": profile.licence if profile else found[0].licence or None,
    }


def _facts(
    row: dict[str, Any], config: EmbeddedConfig, format: FormatFacts | None, measurement: ModelMeasurement | None
) -> list[tuple[str, str]]:
    facts = [
        ("file", row["path"]),
        ("size", format_size(row["size_bytes"])),
        ("origin", row["origin"] + (", model of the settings" if row["default"] else "")),
        ("also called", "\n".join(row["aliases"])),
        ("makes", row["kind"]),
        ("architecture", row["architecture"]),
        ("parameters", _millions(row["parameters"])),
        ("quantization", row["quantization"] or "not stated"),
        ("context", f"{row['context_window']:,} tokens for each request; trained for {row['trained_context']:,}"),
    ]
    if format is not None:
        facts += [
            ("template", "in the file" if format.has_template else "none in the file"),
            ("call format", f"{format.name}, found by: {format.by.replace('_', ' ')}\n{format.why}"),
        ]
    facts += [
        ("vision", "yes" if row["vision"] else "no (it has no projector for images)"),
        ("licence", row["licence"] or "not stated"),
        ("memory", f"about {row['memory_mb']:,} MB, with a context for {config.max_concurrency} requests at once"),
        ("in gateway", row["state"] or ""),
    ]
    if format is not None:
        facts.append(("measured", _measured(measurement, row["name"])))
    return [(name, text) for name, text in facts if text]


def _measured(measurement: ModelMeasurement | None, name: str) -> str:
    if measurement is None:
        return f"not yet; run: dragoman models show {name} --measure"
    untried = len(TASKS) - measurement.tasks
    late = f" (time ran out for {untried} more)" if untried else ""
    threads = "1 thread" if measurement.threads == 1 else f"{measurement.threads} threads"
    return (
        f"{measurement.date}, {threads}, loaded in {measurement.load_s:.1f} s\n"
        f"per second: {measurement.prompt_tokens_per_s:,.0f} prompt tokens, "
        f"{measurement.output_tokens_per_s:,.1f} output tokens\n"
        f"{measurement.right} of {measurement.tasks} tool-call tasks right{late}"
    )


def _millions(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.0f} million"
