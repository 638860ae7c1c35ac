"""How composing tells the user what takes long: nothing here prints."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Receives one line of text for the user."""
Waiting: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""A context manager that shows a text while its body runs."""


def no_report(text: str) -> None:
    """Discards the text."""


def no_waiting(text: str) -> AbstractContextManager[None]:
    """Returns a context manager that does not show the text."""
    return contextlib.nullcontext()
