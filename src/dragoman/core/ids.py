"""Ids that Dragoman generates."""

import secrets
from collections.abc import Callable
from typing import TypeAlias

NewId: TypeAlias = Callable[[], str]
"""Gives a fresh random id of `[A-Za-z0-9]{24}`: randomness is passed in, so that tests are stable."""


def random_id() -> str:
    """24 characters that nobody has had."""
    return secrets.token_hex(12)
