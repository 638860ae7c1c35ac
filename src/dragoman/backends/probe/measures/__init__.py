"""What is measured of a server, one question a file, in the order of use: what decides how it is asked comes first."""

from typing import Final

from dragoman.backends.probe.measures import (
    choices,
    completions,
    context,
    held,
    images,
    parallel,
    prompted,
    stop,
    streams,
    template,
    thoughts,
    tools,
    usage,
    words,
)
from dragoman.backends.probe.subject import Measure

MEASURES: Final[dict[str, Measure]] = {
    "answers": words.measure,
    "chat template": template.measure,
    "tool calls": tools.measure,
    "prompted calls": prompted.measure,
    "parallel calls": parallel.measure,
    "argument deltas": parallel.measure_deltas,
    "tool_choice": choices.measure,
    "streams": streams.measure,
    "constrained": held.measure,
    "stop strings": stop.measure,
    "images": images.measure,
    "completions": completions.measure,
    "usage": usage.measure,
    "thoughts": thoughts.measure,
    "context": context.measure,
}
"""By what they answer."""
DECISIVE: Final = ("answers", "chat template", "tool calls", "prompted calls", "tool_choice")
"""Those that the choice of a mode stands on."""
