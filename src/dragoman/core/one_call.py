"""At most one tool call in an answer, for callers that take no more."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from dragoman.core.events import AnyEvent, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart, Warning


async def with_one_call(events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
    """The same events, with one call at most, as the caller takes no more: there are servers that do not heed that."""
    dropped = ""
    async with aclosing(events):
        async for event in events:
            match event:
                case ToolCallStart(index, name=name) if index > 0:
                    dropped = f"{name} "
                case ToolCallDelta(index, text) if index > 0:
                    dropped += text
                case ToolCallEnd(index) | ToolCallIncomplete(index) if index > 0:
                    yield Warning("extra_call", "a second call was dropped, as one at most was asked for", dropped)
                case _:
                    yield event
