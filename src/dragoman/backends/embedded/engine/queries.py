"""Questions to the child process that need no concurrency slot: the length of a prompt, and the engine's counters."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.backends.embedded.engine_output import read_error
from dragoman.core.errors import BackendUnavailableError


class EngineQueries:
    """The questions that the child has not answered."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], context_window: int) -> None:
        """
        Args:
            send: sends a message to the child.
            context_window: the context window of a request, for errors.
        """
        self._send = send
        self._context_window = context_window
        self._ids = itertools.count(1)
        self._counts: dict[str, asyncio.Future[int]] = {}
        self._metrics: asyncio.Future[str] | None = None

    async def metrics(self) -> str:
        """Returns the engine's own counters, as Prometheus text.

        Raises:
            BackendUnavailableError: the engine is not running.
        """
        if self._metrics is None or self._metrics.done():
            self._metrics = asyncio.get_running_loop().create_future()
            await self._send({"metrics": True})
        return await asyncio.shield(self._metrics)

    async def count(self, text: str) -> int:
        """Returns the number of tokens of a text.

        Raises:
            BackendUnavailableError: the engine is not running, or cannot count.
        """
        id, answer = f"count {next(self._ids)}", asyncio.Future[int]()
        self._counts[id] = answer
        try:
            await self._send({"id": id, "count": text})
            return await answer
        finally:
            del self._counts[id]

    def dispatch(self, message: dict[str, Any]) -> None:
        """Takes in an answer; ignores one whose request was cancelled."""
        if "metrics" in message:
            if self._metrics is not None and not self._metrics.done():
                self._metrics.set_result(message["metrics"])
        elif (answer := self._counts.get(message["id"])) and not answer.done():
            if "tokens" in message:
                answer.set_result(message["tokens"])
            else:
                answer.set_exception(read_error(message["error"], self._context_window))

    def fail(self, why: str) -> None:
        """Fails all questions.

        Args:
            why: why there is no child.
        """
        for answer in self._counts.values():
            if not answer.done():
                answer.set_exception(BackendUnavailableError(why, retry_after_s=2))
        if self._metrics is not None and not self._metrics.done():
            self._metrics.set_exception(BackendUnavailableError(why))
            self._metrics.exception()  # marks the exception as retrieved, as there may be no waiter
