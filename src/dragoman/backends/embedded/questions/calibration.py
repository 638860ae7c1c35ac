"""Measures when a model should answer in words: how probable a call is with a fitting tool, and without one."""

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from typing import Any, Final, NamedTuple

from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.local.measurements import CallCalibration
from dragoman.backends.embedded.questions.call_decision import call_probability
from dragoman.core.errors import ConfigError, quote
from dragoman.core.messages import Message, Request, Text, Tool

_LOST_SHARE: Final = 1 / 30
"""Share of the prompts with a fitting tool that may be answered in words."""
_USEFUL_SHARE: Final = 1 / 3
"""Share of the prompts without one that must be answered in words, for a threshold to be worth its question."""


class CalibrationPrompt(NamedTuple):
    """A request, and whether it has a tool that fits."""

    request: Request
    has_tool: bool


def prompts(model: str) -> Iterator[CalibrationPrompt]:
    """Yields the built-in prompts as requests to a model."""
    data = resources.files(__package__).joinpath("calibration.toml").read_text(encoding="utf-8")
    for group in tomllib.loads(data)["group"]:
        tools = tuple(Tool(tool["name"], tool["description"], json.dumps(_schema(tool))) for tool in group["tools"])
        system = [Message("system", (Text(group["system"]),))] if "system" in group else []
        for key, has_tool in (("fitting", True), ("unfitting", False)):
            for text in group[key]:
                messages = (*system, Message("user", (Text(text),)))
                yield CalibrationPrompt(Request(model, messages, tools), has_tool)


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    required = tool.get("required", [])
    return {"type": "object", "properties": tool["properties"], "required": required, "additionalProperties": False}


async def calibrate(model: EmbeddedModel, report: Callable[[str], None]) -> CallCalibration:
    """Asks a loaded model about all prompts, and returns the threshold that separates them best.

    Args:
        model: the model, started; one that can be asked (`describe.why_never_asked`).
        report: receives what is being done.

    Raises:
        ConfigError: such a threshold would not be used for it.
        DragomanError: the engine failed.
    """
    name = model.models()[0].id
    found: dict[bool, list[float]] = {True: [], False: []}
    all_prompts = list(prompts(name))
    for number, prompt in enumerate(all_prompts, 1):
        report(f"asking whether to call a tool, prompt {number} of {len(all_prompts)}")
        prepared = model.prepare(prompt.request)
        if prepared.suffix:  # `why_never_asked` may not know: without the extra `templates` it cannot render
            raise ConfigError(
                f"expected a model whose replies begin after its prompt, got {quote(name)}, whose template begins them "
                f"with {quote(prepared.suffix)}: it is not asked whether to call a tool; it needs no calibration"
            )
        probability, _ = await call_probability(model.engine, prepared.body, model.format)
        found[prompt.has_tool].append(probability)
    fitting, unfitting = found[True], found[False]
    below = choose_threshold(fitting, unfitting)
    return CallCalibration(
        date=datetime.now(UTC).date().isoformat(),
        words_below=below,
        fitting=len(fitting),
        fitting_lost=sum(each < below for each in fitting),
        unfitting=len(unfitting),
        unfitting_found=sum(each < below for each in unfitting),
    )


def choose_threshold(fitting: Sequence[float], unfitting: Sequence[float]) -> float:
    """Returns the probability of a call below which a model should answer in words; 0 if none is of use.

    It loses at most one of thirty prompts with a fitting tool, finds the most of the others, and lies in the middle
    between the probabilities next to it.

    Args:
        fitting: probabilities of a call for prompts with a fitting tool.
        unfitting: probabilities for the others.
    """
    may_lose = int(len(fitting) * _LOST_SHARE)
    limit = sorted(fitting)[may_lose]
    under = [each for each in unfitting if each < limit]
    if len(under) < _USEFUL_SHARE * len(unfitting):
        return 0.0
    return float(f"{(max(under) + limit) / 2:.2g}")
