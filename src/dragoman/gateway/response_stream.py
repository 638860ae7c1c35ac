"""The loop that reads a backend's response and passes it through the stages, and the second loop for a re-ask.

    backend.generate → batches of events → EventPipeline (the list in `Gateway._stages`) → batches for the client

If a backend fails before anything has come out of the stages, the next attempt may use another one. Where there is one,
the events before the first content (`Start`, warnings, token counts) wait for it.

A second response, which a stage asks for, is collected whole, so a streaming client gets pings meanwhile. It is limited
in time. If it fails, the stage sends the first response with a warning. Samples of it, or another model's, are those of
`gateway/second_opinion`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import BackendUnavailableError, DragomanError, UsageError, loggable_message
from dragoman.core.events import AnyEvent, EventType, Failure, Finish, Notice, Start, UsageUpdate
from dragoman.core.messages import Request
from dragoman.core.stage import EventPipeline, ReaskRequest

log = logging.getLogger("dragoman.guard")


_PRECEDES_CONTENT: Final[frozenset[EventType]] = frozenset((Start, Notice, UsageUpdate))

Generate: TypeAlias = Callable[[Request, ExchangeContext], EventStream]
"""Returns the events of a response to a request."""


class SecondResponse(NamedTuple):
    """What a re-ask has led to."""

    events: Sequence[AnyEvent]
    failed: bool
    """It broke off, or there was none."""
    notices: Sequence[Notice] = ()
    """Warnings about it."""


class BackendAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """A response of one backend."""

    generate: Generate
    """Asks the backend; may be called a second time."""
    request: Request
    """The request to send to it."""
    context: ExchangeContext
    """The exchange that the response is part of."""
    pipeline: EventPipeline
    """The stages."""
    reask_timeout_s: float
    """Time limit of a second response."""
    in_thread: bool = False
    """Whether the stages run in a thread where a response begins and ends, as for a large request."""
    may_fail_over: bool = False
    """Whether another backend can be asked if this one fails before its first content."""
    answer_reask: "Callable[[BackendAttempt, ReaskRequest], Awaitable[SecondResponse]] | None" = None
    """Returns the second response; None: the same model is asked, once."""
    wrap: Callable[[Generate], Generate] | None = None
    """Adds to another backend's responses what is in `generate`; None: nothing."""


NextAttempt: TypeAlias = Callable[[DragomanError | None], Awaitable[BackendAttempt]]
"""Returns the first attempt for None, and the next one for the error of the last one, or raises that error."""


async def stream_response(next_attempt: NextAttempt, failed: DragomanError | None = None) -> EventStream:
    """Yields what comes out of the stages for the response of the first backend that does not fail.

    Args:
        next_attempt: Returns the attempts.
        failed: The error of the last attempt; None: there was none.

    Raises:
        DragomanError: Before anything has come out; later the stream ends with Failure.
    """
    attempt = await next_attempt(failed)
    pipeline = attempt.pipeline
    try:
        async with aclosing(_batches(attempt)) as batches:
            async for batch in batches:
                if attempt.in_thread and _is_boundary(batch):
                    out = await asyncio.to_thread(pipeline.feed, batch)
                else:
                    out = pipeline.feed(batch)
                if out:
                    yield out
                if pipeline.finished or pipeline.ended:
                    break
        if not pipeline.ended:
            async for out in _close_stages(attempt):
                yield out
        return
    except DragomanError as raised:
        error = raised
    attempt.context.attempts.fail(error)
    if not pipeline.started:
        async with aclosing(stream_response(next_attempt, error)) as others:
            async for out in others:
                yield out
    elif out := pipeline.feed([Failure(error)]):
        yield out


async def _close_stages(attempt: BackendAttempt) -> EventStream:
    """Yields what comes out when the stages are closed in order; re-asks the model where one needs it.

    Raises:
        BackendUnavailableError: The response has no end.
    """
    pipeline, in_thread = attempt.pipeline, attempt.in_thread
    for number, stage in enumerate(pipeline.stages):
        reask = await asyncio.to_thread(stage.reask) if in_thread else stage.reask()
        if reask is not None:
            if out := pipeline.feed([reask.notice], number + 1):
                yield out
            attempts = attempt.context.attempts
            attempts.reask(reask.notice.code)
            restore_first = attempts.answering()
            second = await (attempt.answer_reask or _reask)(attempt, reask)
            if not stage.merge_reask(second.events, failed=second.failed):
                restore_first()
            if second.notices and (out := pipeline.feed(second.notices, number + 1)):
                yield out
        out = await asyncio.to_thread(pipeline.close_stage, number) if in_thread else pipeline.close_stage(number)
        if out:
            yield out
    if not pipeline.ended:
        raise BackendUnavailableError("the backend ended without finishing its response")


def _batches(attempt: BackendAttempt) -> EventStream:
    """Returns the events of the backend; where another can be asked, they begin with the first content."""
    batches = attempt.generate(attempt.request, attempt.context)
    return _begin_with_content(batches) if attempt.may_fail_over else batches


async def _begin_with_content(batches: EventStream) -> EventStream:
    """Yields the events; those before the first content come with it.

    Raises:
        DragomanError: The error of a Failure before the first content.
    """
    buffered: list[AnyEvent] = []
    async with aclosing(batches):
        async for batch in batches:
            buffered += batch
            if not _PRECEDES_CONTENT.issuperset(map(type, batch)):
                break
        if buffered:
            *earlier, last = buffered
            if isinstance(last, Failure) and _PRECEDES_CONTENT.issuperset(map(type, earlier)):
                raise last.error
            yield buffered
        async for batch in batches:
            yield batch


def _is_boundary(batch: Sequence[AnyEvent]) -> bool:
    """Whether the response begins or ends: only there the work of a stage may grow with the request."""
    return isinstance(batch[0], Start) or isinstance(batch[-1], Finish | Failure)


async def _reask(attempt: BackendAttempt, reask: ReaskRequest) -> SecondResponse:
    """Returns the model's second response."""
    second_context, events = msgspec.structs.replace(attempt.context, reasked=True), list[AnyEvent]()
    try:
        async with asyncio.timeout(attempt.reask_timeout_s):
            await collect_events(attempt.generate(reask.request, second_context), events)
        return SecondResponse(events, failed=False)
    except UsageError:  # a bug in Dragoman itself
        raise
    except TimeoutError:
        log_timeout(attempt)
    except DragomanError as error:
        log.warning("the model could not be re-asked: %s", loggable_message(error))
    return SecondResponse(events, failed=True)


def log_timeout(attempt: BackendAttempt) -> None:
    """Logs that a second response was not complete in time."""
    log.warning("the model could not be re-asked: it took more than %g s", attempt.reask_timeout_s)


async def collect_events(response: EventStream, events: list[AnyEvent]) -> None:
    """Adds the events of a response to a list, as they arrive.

    Raises:
        DragomanError: The response failed.
    """
    async with aclosing(response) as batches:
        async for batch in batches:
            events += batch
            if isinstance(batch[-1], Failure):
                raise batch[-1].error
