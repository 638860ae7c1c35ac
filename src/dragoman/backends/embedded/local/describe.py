"""A model of this machine, as `dragoman models` and the console describe it."""

from typing import Any

import msgspec

from dragoman import formats
from dragoman.backends.embedded import gguf
from dragoman.backends.embedded.config import EmbeddedConfig, context_window_of
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.measurements import TASKS, CallCalibration, ModelMeasurement, load_calibration
from dragoman.backends.embedded.local.memory import MB
from dragoman.backends.embedded.local.model_facts import (
    FormatFacts,
    needed_bytes,
    profile_of,
    projector_of,
)
from dragoman.backends.embedded.questions.call_decision import has_distinct_calls
from dragoman.backends.embedded.weights import format_size
from dragoman.backends.embedded.weights.job import SPLIT_FILE
from dragoman.core.errors import quote


def model_row(model: LocalModel, config: EmbeddedConfig, format: FormatFacts | None) -> dict[str, Any]:
    """Returns what `list` and `show` print of a model.

    Args:
        model: the model.
        config: its own settings.
        format: its call format; None: it writes no text.
    """
    projector = projector_of(model, config)
    return {
        "name": model.id,
        "aliases": list(model.aliases),
        "kind": kind_of(model),
        "origin": model.origin,
        "path": str(model.path),
        "size_bytes": model.size_bytes,
        "context_window": context_window_of(model.shape.context_window, config),
        "trained_context": model.shape.context_window,
        "call_format": format.name if format else None,
        "vision": projector.has_vision,
        "audio": projector.has_audio,
    }


def kind_of(model: LocalModel) -> str:
    """Returns what the model makes: text, embeddings, or ranks of documents."""
    if not model.shape.pooling:
        return "text"
    return "rerank" if model.shape.pooling == gguf.RANKS else "embeddings"


def describe(model: LocalModel, config: EmbeddedConfig, format: FormatFacts | None) -> dict[str, Any]:
    """Returns `model_row`, and what is read of the file.

    Args:
        model: the model.
        config: its own settings.
        format: its call format; None: it writes no text.
    """
    return {
        **model_row(model, config, format),
        **_contents(model),
        "template": format.has_template if format else None,
        "call_format_found_by": format.by if format else None,
        "call_format_reason": format.why if format else None,
        "memory_mb": round(needed_bytes(model, config) / MB),
        "calls": _call_threshold(model, config, format) if format else None,
    }


def _call_threshold(model: LocalModel, config: EmbeddedConfig, format: FormatFacts) -> dict[str, Any]:
    """Returns when the model answers in words, and how that is known."""
    own, profile = load_calibration(model.path), profile_of(model)
    below = own.words_below if own else profile.words_below if profile else 0.0
    never_asked = why_never_asked(config, format)
    return {
        "words_below": below,
        "asked": bool(below) and config.decide_calls and not never_asked,
        "never_asked": never_asked or None,
        "calibrated": msgspec.to_builtins(own) if own else None,
    }


def why_never_asked(config: EmbeddedConfig, format: FormatFacts) -> str:
    """Returns why a model is never asked whether to call a tool; "" if it can be.

    Args:
        config: its own settings.
        format: its call format.
    """
    if config.engine != "xllamacpp":
        return f"embedded.engine is {config.engine}"
    if format.reply_opening:
        return f"its template begins the reply with {quote(format.reply_opening)}"
    if not has_distinct_calls(formats.get(format.name)):
        return f"calls in the format {format.name} cannot be told from words"
    return ""


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


def fact_lines(
    row: dict[str, Any], config: EmbeddedConfig, format: FormatFacts | None, measurement: ModelMeasurement | None
) -> list[tuple[str, str]]:
    """Returns the names and texts of everything that is known of a model.

    Args:
        row: what `describe` returned.
        config: the model's own settings.
        format: its call format; None: it writes no text.
        measurement: what was measured of it; None: nothing.
    """
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
        facts.append(("calls", _calls(row["calls"], row["name"])))
        facts.append(("measured", _measured(measurement, row["name"])))
    return [(name, text) for name, text in facts if text]


def _calls(threshold: dict[str, Any], name: str) -> str:
    if threshold["never_asked"]:
        return f"free; never asked whether to call a tool: {threshold['never_asked']}"
    own = msgspec.convert(threshold["calibrated"], CallCalibration | None)
    if not threshold["words_below"] and own is None:
        return f"free; to measure whether it calls tools where none fits: dragoman models calibrate {name}"
    if own is not None:
        text = f"{calibration_text(own)} ({own.date})"
    else:
        text = f"answered in words below a probability of {threshold['words_below']:g}, by the catalogue"
    return text if threshold["asked"] or not threshold["words_below"] else f"{text}; not asked by the settings"


def calibration_text(result: CallCalibration) -> str:
    """Returns a calibration in one line."""
    if not result.words_below:
        return "no threshold separates prompts without a fitting tool"
    return (
        f"answered in words below a probability of {result.words_below:g}: {result.unfitting_found} of "
        f"{result.unfitting} prompts without a fitting tool, {result.fitting_lost} of {result.fitting} with one"
    )


def _measured(measurement: ModelMeasurement | None, name: str) -> str:
    if measurement is None:
        return f"not yet; run: dragoman models show {name} --measure"
    untried = TASKS - measurement.tasks
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
