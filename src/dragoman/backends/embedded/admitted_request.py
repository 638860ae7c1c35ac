"""A request that may use the engine: what it can do there, one thing after the other."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, Final

from dragoman.backends.embedded.engine_output import Output, read_error, read_outputs
from dragoman.backends.embedded.prefixes.warm import SlotAction
from dragoman.core.errors import BackendUnavailableError

MessageStream = AsyncGenerator[dict[str, Any], None]


class HeldSlot:
    """A slot of the engine during a block: of one request, or of all requests of a response."""

    def __init__(self) -> None:
        self._stack, self._is_taken = AsyncExitStack(), False

    async def __aenter__(self) -> "HeldSlot":
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def take(self, slot: AbstractAsyncContextManager[None]) -> None:
        """Enters the block of a slot, unless one is held."""
        if not self._is_taken:
            await self._stack.enter_async_context(slot)
            self._is_taken = True

    def pop_all(self) -> AsyncExitStack:
        """Leaves the slot to the caller, who releases it."""
        self._is_taken = False
        return self._stack.pop_all()


class AdmittedRequest:
    """The engine's process during one request, which holds one of its slots."""

    def __init__(
        self,
        messages: Callable[[Mapping[str, Any]], MessageStream],
        count: Callable[[str], Awaitable[int]],
        context_window: int,
    ) -> None:
        """
        Args:
            messages: sends a message to the process and yields its answers.
            count: returns the number of tokens of a text.
            context_window: the context of the engine.
        """
        self.messages: Final = messages
        self._count, self._context_window = count, context_window

    async def complete(self, body: Mapping[str, Any]) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion.

        Raises:
            DragomanError: it was rejected, or broke off.
        """
        async with aclosing(self.messages({"body": body})) as messages:
            async for message in messages:
                for output in read_outputs(message, self._context_window):
                    yield output

    async def move_slot(self, action: SlotAction, slot: int, filename: str) -> int:
        """Saves a slot to a file or restores it, and returns the number of its tokens.

        Raises:
            DragomanError: that failed.
        """
        sent = {"slot": slot, "action": action, "filename": filename}
        async with aclosing(self.messages(sent)) as messages:
            async for message in messages:
                if "error" in message:
                    raise read_error(message["error"], self._context_window)
                return int(message["moved"])
        raise BackendUnavailableError("the embedded engine did not answer")

    async def count(self, text: str) -> int:
        """Returns the number of tokens of a text.

        Raises:
            DragomanError: the engine is not running, or cannot count.
        """
        return await self._count(text)
