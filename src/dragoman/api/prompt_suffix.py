"""Finds the reasoning that a prompt leaves open, such as `<think>`."""

import re
from functools import cache

from dragoman import formats
from dragoman.core.errors import UsageError
from dragoman.parsing.format import Format


def open_reasoning_prefix(prompt: str) -> str:
    r"""Returns the marker of reasoning that a rendered prompt leaves open, such as `<think>\n`.

    The reply then begins inside the reasoning; pass the result to `ToolCallReader(…, prompt_suffix=…)`. It holds for
    this prompt; `FormatMatch.prompt_suffix` holds for the chat template without the settings of a request.

        open_reasoning_prefix("<|im_start|>assistant\n<think>\n")  # "<think>\n"

    Args:
        prompt: The whole prompt, as text.

    Returns:
        The marker and the white space after it; empty where no reasoning is open.

    Raises:
        UsageError: `prompt` is not text.
    """
    if not isinstance(prompt, str):
        raise UsageError(f"expected a prompt's text, got {type(prompt).__name__}; render it with tokenize=False")
    return find_open_reasoning(prompt)


def find_open_reasoning(prompt: str) -> str:
    """Returns the reasoning marker of any format at the end of a prompt, with the white space after it, or ""."""
    match = _open_reasoning_pattern().search(prompt, max(0, len(prompt) - 100))
    return match[0] if match else ""


@cache
def known_formats() -> tuple[Format, ...]:
    """All built-in formats except `auto`."""
    return tuple(format for format in formats.built_in() if format.name != "auto")


@cache
def _open_reasoning_pattern() -> re.Pattern[str]:
    """Matches an opening reasoning marker of any format at the end of a text."""
    openers = {"<think>", *(opener for format in known_formats() for opener in format.reasoning_tags)}
    return re.compile(rf"(?:{'|'.join(map(re.escape, sorted(openers, key=len, reverse=True)))})\s*\Z")
