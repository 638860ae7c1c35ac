"""Which events of an answer are for a client, by its API; what another API alone has becomes a warning."""

from collections.abc import Generator, Iterable
from typing import Final

import msgspec

from dragoman.core.details import SERVICE, SPOKEN, is_for
from dragoman.core.errors import quote
from dragoman.core.events import (
    BREAK,
    AnyEvent,
    Detail,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallStart,
    VendorBlock,
    Warning,
)
from dragoman.core.values import Request

_SAYS: Final = (TextDelta, RefusalDelta, ToolCallStart, VendorBlock)
OF_ITSELF: Final = ("stop", "tool_calls")
"""Ends that the model has chosen."""


def says(event: AnyEvent) -> bool:
    """Whether an answer with this event is not empty."""
    return isinstance(event, _SAYS) or (isinstance(event, Detail) and event.name in SPOKEN)


def for_client(
    events: Iterable[AnyEvent], request: Request, warnings: tuple[Warning, ...], dropped: set[str]
) -> Generator[AnyEvent, None, None]:
    """What events are for this client: its own name of the model, and nothing that only another API has.

    `dropped` are the names of details that were reported.
    """
    for event in events:
        if isinstance(event, Start):
            yield msgspec.structs.replace(event, model=request.model)
            yield from warnings
        elif isinstance(event, VendorBlock) and event.dialect != request.dialect:
            told = f"{request.dialect} has no place for a block of type {quote(event.type)}"
            yield Warning("content_dropped", told, event.json, event.type)
        elif isinstance(event, Detail) and not is_for(event.dialect, request.dialect):
            if event.name not in dropped and event.name not in (*SERVICE, BREAK):
                dropped.add(event.name)
                told = f"{request.dialect} has no equivalent of {event.name}"
                yield Warning("content_dropped", told, detail=event.name)
        else:
            yield event
