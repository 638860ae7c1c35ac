"""Measures a model of this machine: its speed, and how many tool calls of a small check it gets right."""

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import TokenText
from dragoman.backends.embedded.local import memory
from dragoman.backends.embedded.local.files import LocalModel
from dragoman.backends.embedded.local.measurements import ModelMeasurement
from dragoman.backends.embedded.local.model_facts import needed_bytes, profile_of
from dragoman.cli.models.small_check import TASKS, Task, is_right, request_of
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import complete_calls
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.identifiers import random_id
from dragoman.core.messages import ToolCall
from dragoman.gateway.gateway import Gateway

_LIMIT_S: Final = 100.0
"""Time after which no further task is given."""
_PROMPT: Final = "Once upon a time there was a"
_OUTPUT_TOKENS: Final = 48
_CONTEXT_WINDOW: Final = 4096

Report = Callable[[str], None]


async def measure(model: LocalModel, config: EmbeddedConfig, report: Report) -> ModelMeasurement:
    """Loads the model in a process of its own, and measures it.

    Args:
        model: the model.
        config: its own settings.
        report: receives what is being done.

    Raises:
        DragomanError: it does not write text, does not fit into memory, or does not start.
    """
    engine_model = unloaded_model(model, config, report)
    began_s = time.monotonic()
    try:
        report(f"loading {model.id}")
        await engine_model.start()
        load_s = time.monotonic() - began_s
        report("measuring its speed")
        prompt_tokens_per_s = await engine_model.engine.reading_speed()
        output_tokens_per_s = await _writing_speed(engine_model)
        results = await _check(engine_model, model.id, began_s + _LIMIT_S, report)
    finally:
        await engine_model.close()
    return ModelMeasurement(
        date=datetime.now(UTC).date().isoformat(),
        load_s=round(load_s, 1),
        prompt_tokens_per_s=round(prompt_tokens_per_s, 1),
        output_tokens_per_s=round(output_tokens_per_s, 1),
        right=sum(results),
        tasks=len(results),
        threads=config.threads or max(1, (os.cpu_count() or 2) - 1),
    )


def unloaded_model(model: LocalModel, config: EmbeddedConfig, report: Report) -> EmbeddedModel:
    """Returns a model to be measured, for one request at a time.

    Args:
        model: the model.
        config: its own settings.
        report: receives what is being done.

    Raises:
        ConfigError: it does not write text, or does not fit into memory.
    """
    if model.shape.pooling:
        raise ConfigError(f"{model.id} writes no text; only models that do are measured")
    window = min(config.context_window or _CONTEXT_WINDOW, model.shape.context_window)
    config = msgspec.structs.replace(config, max_concurrency=1, context_window=window, first_response_target_s=0)
    _check_memory(model, config)
    logging.getLogger("dragoman").addHandler(logging.NullHandler())
    return EmbeddedModel(model.path, profile_of(model), config, report, name=model.id)


def _check_memory(model: LocalModel, config: EmbeddedConfig) -> None:
    needed = needed_bytes(model, config)
    available = memory.budget_bytes(config.memory_mb, ())
    if needed > available:
        raise ConfigError(
            f"measuring {model.id} needs about {needed / memory.MB:.0f} MB of memory, {available / memory.MB:.0f} MB "
            "are available; `dragoman models ps` lists what the running gateway has loaded"
        )


async def _writing_speed(model: EmbeddedModel) -> float:
    """Returns the output tokens per second after the first one; 0 if they are not known."""
    body = {"prompt": _PROMPT, "n_predict": _OUTPUT_TOKENS, "ignore_eos": True, "temperature": 0}
    times_s = [time.monotonic() async for output in model.engine.complete(body) if isinstance(output, TokenText)]
    seconds = times_s[-1] - times_s[0] if times_s else 0.0
    return (len(times_s) - 1) / seconds if seconds else 0.0


async def _check(model: EmbeddedModel, name: str, until_s: float, report: Report) -> list[bool]:
    """Returns for each task whether it was done right; without those for which there was no time."""
    gateway, results = Gateway([model]), list[bool]()
    for number, task in enumerate(TASKS, 1):
        if time.monotonic() > until_s:
            break
        report(f"checking its tool calls, task {number} of {len(TASKS)}")
        results.append(is_right(task, await _calls(gateway, task, name)))
    return results


async def _calls(gateway: Gateway, task: Task, model: str) -> list[ToolCall]:
    """Returns the complete calls of the response; none if it failed."""
    context = ExchangeContext(random_id(), int(time.time()), random_id)
    try:
        return complete_calls(
            [event async for batch in gateway.generate(request_of(task, model), context) for event in batch]
        )
    except DragomanError:
        return []
