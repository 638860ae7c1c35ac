"""What may stand beside one exchange and hear it: nothing of the exchange depends on it.

    came(body) → read(request) → tapped(turn) → asks, gave, heard, as often as a model is asked → leaving(events)

`sending` is put around what sends the answer. `Several` are as one.
"""

from collections.abc import AsyncGenerator, Callable, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.events import AnyEvent
from dragoman.core.messages import Request

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Any]
T = TypeVar("T")


class Hearing:
    """Hears nothing; a base for what does. It is the exchange's `Tap`."""

    def came(self, body: bytes) -> None:
        """The body is here."""

    def read(self, request: Request) -> None:
        """It has been understood."""

    def tapped(self, turn: ExchangeContext) -> ExchangeContext:
        """The turn by which backends are asked, heard from now on."""
        return replace(turn, tap=self)

    def asks(self, backend: Backend, request: Request) -> None:
        """See `Tap`."""

    def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """See `Tap`."""
        return events

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """See `Tap`."""
        return pieces

    def leaving(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """The events for the client."""
        return events

    def sending(self, send: Send) -> Send:
        """What sends the answer."""
        return send


class Several(Hearing):
    """Hears for all of these."""

    def __init__(self, *each: Hearing) -> None:
        self._each = each

    def came(self, body: bytes) -> None:
        """See `Hearing`; so with all that follow."""
        for one in self._each:
            one.came(body)

    def read(self, request: Request) -> None:
        """Each hears it."""
        for one in self._each:
            one.read(request)

    def tapped(self, turn: ExchangeContext) -> ExchangeContext:
        """Each has its part in it."""
        for one in self._each:
            turn = one.tapped(turn)
        return replace(turn, tap=self)

    def asks(self, backend: Backend, request: Request) -> None:
        """Each hears it."""
        for one in self._each:
            one.asks(backend, request)

    def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """Through each."""
        for one in self._each:
            events = one.gave(events)
        return events

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Through each."""
        for one in self._each:
            pieces = one.heard(to, sent, pieces)
        return pieces

    def leaving(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """Through each."""
        for one in self._each:
            events = one.leaving(events)
        return events

    def sending(self, send: Send) -> Send:
        """Through each."""
        for one in self._each:
            send = one.sending(send)
        return send
