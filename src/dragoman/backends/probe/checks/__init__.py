"""What is measured of a server, one question a file, in the order of use: what decides how it is asked comes first."""

from typing import Final

from dragoman.backends.probe.checks import (
    basics,
    choices,
    completions,
    constraints,
    content,
    context_window,
    parallel,
    prompted,
    reasoning,
    stop,
    streaming,
    template,
    tools,
    usage,
)
from dragoman.backends.probe.context import Measure

MEASURES: Final[dict[str, Measure]] = {
    "answers": basics.measure,
    "chat template": template.measure,
    "tool calls": tools.measure,
    "prompted calls": prompted.measure,
    "parallel calls": parallel.measure,
    "argument deltas": parallel.measure_deltas,
    "tool_choice": choices.measure,
    "streams": streaming.measure,
    "constrained": constraints.measure,
    "stop strings": stop.measure,
    "images": content.measure,
    "completions": completions.measure,
    "usage": usage.measure,
    "thoughts": reasoning.measure,
    "context": context_window.measure,
}
"""By what they answer."""
DECISIVE: Final = ("answers", "chat template", "tool calls", "prompted calls", "tool_choice")
"""Those that the choice of a mode stands on."""
