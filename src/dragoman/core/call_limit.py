"""How many calls one answer may have.

A small model that must call a tool goes on to call others that the user never asked for: Qwen2.5-Coder 1.5B made 36
calls to "Weather in Madrid?" (2026-11). So where a call is required, one is enough, unless the client states that it
takes several.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, Notice, ToolCallDelta, ToolCallEnd, ToolCallIncomplete, ToolCallStart
from dragoman.core.messages import Request

CALLS_LIMIT: Final = 32
"""Calls of one answer, unless the settings state another number."""


def one_call(request: Request) -> Request:
    """The request, for one call where a call is required and the client has not stated that it takes several."""
    choice = request.tool_choice
    if choice.mode not in ("required", "named") or request.several or not choice.parallel:
        return request
    return replace(request, tool_choice=replace(choice, parallel=False))


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
                    yield Notice("extra_call", "a second call was dropped, as one at most was asked for", dropped)
                case _:
                    yield event
