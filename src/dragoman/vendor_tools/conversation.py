"""The conversation before the calls of one round, with what executors find out about it once for all these calls."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, TypeVar

from dragoman.core.messages import Message

T = TypeVar("T")


class Conversation:
    """All messages before the response of the model that contains the calls."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.messages = tuple(messages)
        self._values: dict[Hashable, Any] = {}
        self._lock = asyncio.Lock()

    async def once(self, key: Hashable, compute: Callable[[], Awaitable[T]]) -> T:
        """Returns what `compute` returns, which is called once for each key; other calls wait for it."""
        async with self._lock:
            if key not in self._values:
                self._values[key] = await compute()
            value: T = self._values[key]
            return value
