"""Stores a response that its client can continue, before the client gets the end of it."""

from collections.abc import Sequence

from dragoman import dialects
from dragoman.core.collect import collect
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta
from dragoman.core.messages import Request
from dragoman.core.stage import EventStage
from dragoman.gateway.storage.response_store import ResolvedRequest, ResponseStore


class ResponseRecorder(EventStage):
    """Collects one response and stores it at Finish; adds the store's warnings after Start."""

    def __init__(self, store: ResponseStore, request: Request, resolved: ResolvedRequest) -> None:
        """
        Args:
            store: Where responses are kept.
            request: The request of the client; its `store` says whether the response is stored.
            resolved: The request with all that it references, as `store` returned it.
        """
        self._store, self._request, self._resolved = store, request, resolved
        self._events: list[AnyEvent] = []
        self._texts: list[str] = []
        """The latest text; joined only when another event follows, to cost little while the response is streamed."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events unchanged, and the warnings."""
        if self._request.store:
            for event in events:
                self._record(event)
            if events and isinstance(events[-1], Finish):
                reply = collect(self._events, self._request.dialect)
                body = dialects.get(self._request.dialect).write_reply(reply, self._request)
                self._store.add(self._resolved, reply, body)
        if self._resolved.warnings and events and isinstance(events[0], Start):
            return [events[0], *self._resolved.warnings, *events[1:]]
        return events

    def _record(self, event: AnyEvent) -> None:
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
            return
        if self._texts:
            self._events.append(TextDelta("".join(self._texts)))
            self._texts.clear()
        self._events.append(event)
