"""Writes calls that worked in other conversations, as examples for tools.

They are marked as examples, because a small model takes values of its prompt for facts. Values of other conversations
must not become arguments here.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dragoman.core.messages import Tool, ToolCall

EXAMPLES_HEAD: Final = (
    "Examples of the form of calls. Their values are of other conversations and not facts: take yours from this "
    "conversation."
)
EXAMPLES_KEY: Final = "example_calls_with_values_of_other_conversations"
"""Name of the examples in a tool's definition, where a chat template writes it."""


def example_calls(tools: Sequence[Tool]) -> Iterator[ToolCall]:
    """Yields the examples of the tools as calls."""
    for tool in tools:
        for number, arguments in enumerate(tool.examples):
            yield ToolCall(f"example{number}", tool.name, arguments)
