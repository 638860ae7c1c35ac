"""Progress of prompt evaluation."""

from typing import NamedTuple


class PromptProgress(NamedTuple):
    """Progress of prompt evaluation, in tokens."""

    done: int
    """Tokens evaluated so far, those from the prompt cache included."""
    total: int
    cut: str = ""
    """Name of what was trimmed from the request to shorten evaluation; empty: nothing."""
