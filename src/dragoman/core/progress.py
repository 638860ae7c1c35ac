"""How far a model has read its prompt."""

from typing import NamedTuple


class PromptProgress(NamedTuple):
    """Tokens of a prompt."""

    done: int
    """Read so far, those from the prompt cache included."""
    total: int
    cut: str = ""
    """What was left out of the request so that it is read in time; empty: nothing."""
