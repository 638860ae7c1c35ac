"""Limits on the number of calls in one response.

A small model that must call a tool continues with calls that the user never requested: Qwen2.5-Coder 1.5B made 36
calls for "Weather in Madrid?" (2026-11). So if a call is required, the limit is one, unless the client states that it
accepts several.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, Notice, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.core.messages import Request

MAX_CALLS: Final = 32
"""Maximum calls of one response, unless the settings contain another number."""


def limit_to_one_call(request: Request) -> Request:
    """Returns the request, limited to one call if one is required and the client does not accept several."""
    choice = request.tool_choice
    if choice.mode not in ("required", "named") or request.accepts_parallel_calls or not choice.parallel_tool_calls:
        return request
    return replace(request, tool_choice=replace(choice, parallel_tool_calls=False))


async def first_call_only(events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
    """Yields the events with the first call only: some servers ignore the request for a single call."""
    dropped = ""
    async with aclosing(events):
        async for event in events:
            match event:
                case ToolCallStart(index, name=name) if index > 0:
                    dropped = f"{name} "
                case ToolCallDelta(index, text) if index > 0:
                    dropped += text
                case ToolCallEnd(index) | ToolCallIncomplete(index) if index > 0:
                    yield Notice(
                        "extra_call_dropped", "a second call was dropped: the request allows only one", dropped
                    )
                case _:
                    yield event
