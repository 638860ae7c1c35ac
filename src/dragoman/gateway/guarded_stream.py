"""A backend's answer with its calls guarded: judged, mended, and asked for once more where they are not right.

The second answer is waited for as a whole, so the client of a stream gets pings meanwhile. It is bounded in tokens and
in time; where it fails, or is no better, the first one stands, and a warning says so.
"""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.errors import DragomanError, UsageError, logged
from dragoman.core.events import AnyEvent, Failure, Notice, TextDelta, UsageUpdate
from dragoman.core.messages import Request
from dragoman.guard.guard import MAX_KEPT_EVENTS, ToolCallGuard
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.reask import ReaskRequest

log = logging.getLogger("dragoman.guard")


async def guarded(
    backend: Backend, request: Request, turn: ExchangeContext, policy: GuardPolicy
) -> AsyncGenerator[AnyEvent, None]:
    """What the backend answers, its calls as right as they can be made.

    Raises: DragomanError: before Start only; later, the stream ends with Failure.
    """
    guard = ToolCallGuard(request, policy)
    async with aclosing(turn.ask(backend, request)) as events:
        async for event in events:
            if isinstance(event, TextDelta) and not guard.rejected:  # nearly all events of an answer
                if len(guard.received) < MAX_KEPT_EVENTS:
                    guard.received.append(event)
                yield event
                continue
            for each in guard.feed(event):
                yield each
            if guard.finished:
                break
    if (asked := guard.reask_request()) is not None:
        yield Notice("reasked", f"{asked.reason}; the model was asked once more")
        await _ask_again(backend, asked, turn, guard, policy)
        if guard.usage:
            yield UsageUpdate(guard.usage)
    for each in guard.close():
        yield each


async def _ask_again(
    backend: Backend, asked: ReaskRequest, turn: ExchangeContext, guard: ToolCallGuard, policy: GuardPolicy
) -> None:
    second = ToolCallGuard(asked.request, replace(policy, delivery="atomic", ask_again=False))
    second_turn = dataclasses.replace(turn, reasked=True)
    given: list[AnyEvent] = []
    try:
        async with asyncio.timeout(policy.again_s), aclosing(second_turn.ask(backend, asked.request)) as events:
            async for event in events:
                if isinstance(event, Failure):
                    raise event.error
                given += second.feed(event)
    except UsageError:  # a bug of ours
        raise
    except (TimeoutError, DragomanError) as error:
        why = logged(error) if isinstance(error, DragomanError) else f"it took more than {policy.again_s:g} s"
        log.warning("the model could not be asked once more: %s", why)
        given.clear()
    guard.merge_reask(second, given)
