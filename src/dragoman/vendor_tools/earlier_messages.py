"""The conversation before the calls of one round, with what executors keep about it for all these calls."""

from collections.abc import Hashable, Iterable
from typing import Any

from dragoman.core.messages import Message


class EarlierMessages:
    """All messages before the response of the model that contains the calls."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = tuple(messages)
        self.memo: dict[Hashable, Any] = {}
        """Values of executors, by keys of their own."""
