"""Validates the tool calls of a backend's response, and re-asks the model for calls that cannot be repaired.

The second response is collected completely, so a streaming client gets pings meanwhile. It is limited in tokens and in
time. If it fails or is not better, the first response is sent with a warning.
"""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.errors import DragomanError, UsageError, loggable_message
from dragoman.core.events import AnyEvent, Failure, Notice, TextDelta, UsageUpdate
from dragoman.core.messages import Request
from dragoman.guard.guard import MAX_KEPT_EVENTS, ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.reask import ReaskRequest

log = logging.getLogger("dragoman.guard")


async def guard_stream(
    backend: Backend, request: Request, context: ExchangeContext, policy: GuardPolicy
) -> AsyncGenerator[AnyEvent, None]:
    """Yields the backend's events, with calls validated and repaired.

    Args:
        backend: The backend, which may be asked a second time.
        request: The request to send to it.
        context: The exchange that the response is part of.
        policy: The settings of the guard.

    Raises:
        DragomanError: Before Start only; later, the stream ends with Failure.
    """
    guard = ToolCallGuard(request, policy)
    async with aclosing(context.generate(backend, request)) as events:
        async for event in events:
            if isinstance(event, TextDelta) and not guard.rejected:  # most events are text
                if len(guard.received) < MAX_KEPT_EVENTS:
                    guard.received.append(event)
                yield event
                continue
            for each in guard.feed(event):
                yield each
            if guard.finished:
                break
    if (reask := guard.reask_request()) is not None:
        yield Notice("reasked", f"{reask.reason}; the model was re-asked")
        await _reask(backend, reask, context, guard, policy)
        if guard.usage:
            yield UsageUpdate(guard.usage)
    for each in guard.close():
        yield each


async def _reask(
    backend: Backend, reask: ReaskRequest, context: ExchangeContext, guard: ToolCallGuard, policy: GuardPolicy
) -> None:
    second = ToolCallGuard(reask.request, replace(policy, buffering="all", reask=False))
    second_turn = dataclasses.replace(context, reasked=True)
    second_events: list[AnyEvent] = []
    try:
        async with (
            asyncio.timeout(policy.reask_timeout_s),
            aclosing(second_turn.generate(backend, reask.request)) as events,
        ):
            async for event in events:
                if isinstance(event, Failure):
                    raise event.error
                second_events += second.feed(event)
    except UsageError:  # a bug in Dragoman itself
        raise
    except (TimeoutError, DragomanError) as error:
        why = (
            loggable_message(error)
            if isinstance(error, DragomanError)
            else f"it took more than {policy.reask_timeout_s:g} s"
        )
        log.warning("the model could not be re-asked: %s", why)
        second_events.clear()
    guard.merge_reask(second, second_events)
