"""Holds a slot of the engine from the first question to the end of the response: no other request comes between."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from dragoman.backends.embedded.admitted_request import HeldSlot
from dragoman.backends.embedded.engine_output import Output


class HasSlots(Protocol):
    """An engine with slots, a `LlamaProcess`."""

    def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion; see `LlamaProcess.complete`."""


class HoldingEngine:
    """An engine for one response: all its completions have the same slot."""

    def __init__(self, engine: HasSlots, slot: HeldSlot) -> None:
        """
        Args:
            engine: the engine.
            slot: what holds the slot; the caller releases it.
        """
        self._engine, self._slot = engine, slot

    def complete(self, body: Mapping[str, Any], *, admitted: bool = False) -> AsyncGenerator[Output, None]:
        """Returns the output of one completion."""
        return self._engine.complete(body, admitted=admitted, slot=self._slot)
