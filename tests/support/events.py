"""The events of a backend or gateway as one list."""

from dragoman.core.backend import EventStream
from dragoman.core.events import AnyEvent


async def all_events(stream: EventStream) -> list[AnyEvent]:
    """Reads a stream of batches to its end."""
    return [event async for batch in stream for event in batch]
