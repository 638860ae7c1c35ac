"""The checks of the probe, in the order in which they run: those that decide the tool mode come first."""

from typing import Final

from dragoman.backends.probe.checks import basics, constraints, content, streaming, tools
from dragoman.backends.probe.context import ProbeCheck

CHECKS: Final[dict[str, ProbeCheck]] = {
    "answers": basics.check_answers,
    "chat template": constraints.check_chat_template,
    "tool calls": tools.check_tool_calls,
    "prompted calls": tools.check_prompted_calls,
    "parallel calls": tools.check_parallel_calls,
    "argument deltas": tools.check_argument_deltas,
    "tool_choice": tools.check_tool_choice,
    "streams": streaming.check_streams,
    "constrained": constraints.check_constraints,
    "stop strings": basics.check_stop_strings,
    "images": content.check_images,
    "completions": constraints.check_completions,
    "usage": basics.check_usage,
    "reasoning": content.check_reasoning,
    "context": basics.check_context_window,
}
"""The check that answers each question."""
DECISIVE_CHECKS: Final = ("answers", "chat template", "tool calls", "prompted calls", "tool_choice")
"""The questions that decide the tool mode."""
