"""What a prompt leaves open of the reply, such as `<think>`."""

import re
from functools import cache

from dragoman import formats
from dragoman.core.errors import UsageError
from dragoman.parsing.format import Format


def open_reasoning_prefix(prompt: str) -> str:
    """What a whole prompt leaves open, `<think>\\n` say: the reply begins within it, and its reader is to know.

    It is of this prompt, where `FormatMatch.prompt_tail` is of the template as it is without settings of a request.

    Raises: UsageError: the prompt is no text.
    """
    if not isinstance(prompt, str):
        raise UsageError(f"expected a prompt's text, got {type(prompt).__name__}; render it with tokenize=False")
    return left_open(prompt)


def left_open(prompt: str) -> str:
    """What opens thoughts at a prompt's end, in any format, with the space behind it; "" where nothing does."""
    found = _opened().search(prompt, max(0, len(prompt) - 100))
    return found[0] if found else ""


@cache
def known_formats() -> tuple[Format, ...]:
    """All formats but `auto`."""
    return tuple(formats.get(name) for name in formats.names() if name != "auto")


@cache
def _opened() -> re.Pattern[str]:
    """What opens thoughts, in any format, where it is the last that stands there."""
    openers = {"<think>", *(opener for format in known_formats() for opener in format.thoughts)}
    return re.compile(rf"(?:{'|'.join(map(re.escape, sorted(openers, key=len, reverse=True)))})\s*\Z")
