"""Observers of one exchange. The exchange does not depend on them.

    on_body → on_request → wrap_context → wrap_client_events
    on_backend_call → wrap_events, wrap_model_output      for each backend call

`wrap_send` wraps the function that sends the response. A `CompositeObserver` combines several observers.
"""

from collections.abc import AsyncGenerator, Callable, MutableMapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.messages import Request

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Any]
T = TypeVar("T")


class ServerObserver:
    """Base class that observes nothing. It is also the `ExchangeObserver` of the exchange."""

    def on_body(self, body: bytes) -> None:
        """The body has been received."""

    def on_request(self, request: Request) -> None:
        """The request has been parsed."""

    def wrap_context(self, context: ExchangeContext) -> ExchangeContext:
        """Returns the context for the backends, observed from here on."""
        return msgspec.structs.replace(context, observer=self)

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """See `ExchangeObserver`."""

    def wrap_events(self, events: EventStream) -> EventStream:
        """See `ExchangeObserver`."""
        return events

    def wrap_model_output(self, target: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """See `ExchangeObserver`."""
        return pieces

    def wrap_client_events(self, events: EventStream) -> EventStream:
        """Wraps the events for the client."""
        return events

    def wrap_send(self, send: Send) -> Send:
        """Wraps the function that sends the response."""
        return send


class CompositeObserver(ServerObserver):
    """Forwards to several observers, in order."""

    def __init__(self, *each: ServerObserver) -> None:
        self._each = each

    def on_body(self, body: bytes) -> None:
        """See `ServerObserver`, also for the methods below."""
        for one in self._each:
            one.on_body(body)

    def on_request(self, request: Request) -> None:
        """Forwards to each."""
        for one in self._each:
            one.on_request(request)

    def wrap_context(self, context: ExchangeContext) -> ExchangeContext:
        """Lets each wrap the context."""
        for one in self._each:
            context = one.wrap_context(context)
        return msgspec.structs.replace(context, observer=self)

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """Forwards to each."""
        for one in self._each:
            one.on_backend_call(backend, request)

    def wrap_events(self, events: EventStream) -> EventStream:
        """Lets each wrap the events."""
        for one in self._each:
            events = one.wrap_events(events)
        return events

    def wrap_model_output(self, target: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Lets each wrap the output."""
        for one in self._each:
            pieces = one.wrap_model_output(target, sent, pieces)
        return pieces

    def wrap_client_events(self, events: EventStream) -> EventStream:
        """Lets each wrap the events."""
        for one in self._each:
            events = one.wrap_client_events(events)
        return events

    def wrap_send(self, send: Send) -> Send:
        """Lets each wrap the function."""
        for one in self._each:
            send = one.wrap_send(send)
        return send
