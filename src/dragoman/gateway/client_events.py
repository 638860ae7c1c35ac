"""Which events of an answer are for a client, by its API; what another API alone has becomes a warning."""

from collections.abc import Generator, Iterable, Iterator
from typing import Final

import msgspec

from dragoman.core.errors import quote
from dragoman.core.events import (
    BREAK,
    AnyEvent,
    Detail,
    Notice,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallStart,
    VendorBlock,
)
from dragoman.core.messages import Request
from dragoman.core.response_details import PROGRESS, SERVICE, SPOKEN, is_for
from dragoman.wire.web_sources import WebSourceConverter

_SAYS: Final = (TextDelta, RefusalDelta, ToolCallStart, VendorBlock)
OF_ITSELF: Final = ("stop", "tool_calls")
"""Ends that the model has chosen."""


def says(event: AnyEvent) -> bool:
    """Whether an answer with this event is not empty."""
    return isinstance(event, _SAYS) or (isinstance(event, Detail) and event.name in SPOKEN)


class ForClient:
    """What of one answer is for its client: its own name of the model, and nothing that only another API has."""

    __slots__ = ("_dropped", "_request", "_sources", "_warnings")

    def __init__(self, request: Request, warnings: tuple[Notice, ...]) -> None:
        """`warnings` come after Start."""
        self._request = request
        self._warnings = warnings
        self._dropped: set[str] = set()
        """Names of details that were reported."""
        self._sources = WebSourceConverter(request.dialect)

    def pass_on(self, events: Iterable[AnyEvent]) -> Generator[AnyEvent, None, None]:
        """The events that these become."""
        for event in events:
            if isinstance(event, TextDelta):  # as most are
                self._sources.text(event)
                yield event
            else:
                for each in self._sources.pass_on(event):
                    yield from self._other(each)

    def _other(self, event: AnyEvent) -> Iterator[AnyEvent]:
        client = self._request.dialect
        if isinstance(event, Start):
            yield msgspec.structs.replace(event, model=self._request.model)
            yield from self._warnings
        elif isinstance(event, VendorBlock) and event.dialect != client:
            told = f"{client} has no place for a block of type {quote(event.type)}"
            yield Notice("content_dropped", told, event.json, event.type)
        elif isinstance(event, Detail) and not is_for(event.dialect, client):
            if event.name not in self._dropped and event.name not in (*SERVICE, BREAK, PROGRESS):
                self._dropped.add(event.name)
                yield Notice("content_dropped", f"{client} has no equivalent of {event.name}", detail=event.name)
        else:
            yield event
