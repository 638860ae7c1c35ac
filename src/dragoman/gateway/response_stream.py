"""The loop that reads one backend's response and passes it through the stages, and the second loop for a re-ask.

    backend.generate → batches of events → EventPipeline (the list in `Gateway._stages`) → batches for the client

A second response, which a stage asks for, is collected whole, so a streaming client gets pings meanwhile. It is limited
in time. If it fails, the stage sends the first response with a warning.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import BackendUnavailableError, DragomanError, UsageError, loggable_message
from dragoman.core.events import AnyEvent, Failure, Finish, Start
from dragoman.core.messages import Request
from dragoman.core.stage import EventPipeline, EventStage, ReaskRequest
from dragoman.off_loop import off_loop

log = logging.getLogger("dragoman.guard")


Generate: TypeAlias = Callable[[Request, ExchangeContext], EventStream]
"""Returns the events of a response to a request."""


async def stream_response(
    generate: Generate,
    request: Request,
    context: ExchangeContext,
    pipeline: EventPipeline,
    reask_timeout_s: float,
    in_thread: bool = False,
) -> EventStream:
    """Yields what comes out of the pipeline for the response of one backend.

    Args:
        generate: Asks the backend; may be called a second time.
        request: The request to send to it.
        context: The exchange that the response is part of.
        pipeline: The stages.
        reask_timeout_s: Time limit of a second response.
        in_thread: Whether the stages run in a thread where a response begins and ends, as for a large request.

    Raises:
        DragomanError: Before anything has come out; later the stream ends with Failure.
    """
    try:
        async with aclosing(generate(request, context)) as batches:
            async for batch in batches:
                if in_thread and _is_boundary(batch):
                    out = await asyncio.to_thread(pipeline.feed, batch)
                else:
                    out = pipeline.feed(batch)
                if out:
                    yield out
                if pipeline.finished or pipeline.ended:
                    break
        async for out in _close_stages(generate, context, pipeline, reask_timeout_s, in_thread):
            yield out
        if not pipeline.ended:
            raise BackendUnavailableError("the backend ended without finishing its response")
    except DragomanError as error:
        if not pipeline.started:
            raise
        if out := pipeline.feed([Failure(error)]):
            yield out


async def _close_stages(
    generate: Generate, context: ExchangeContext, pipeline: EventPipeline, reask_timeout_s: float, in_thread: bool
) -> EventStream:
    """Yields what comes out when the stages are closed in order; re-asks the model where one needs it."""
    if pipeline.ended:
        return
    for number, stage in enumerate(pipeline.stages):
        if (reask := await off_loop(in_thread, stage.reask)) is not None:
            if out := pipeline.feed([reask.notice], number + 1):
                yield out
            await _reask(generate, reask, context, stage, reask_timeout_s)
        if out := await off_loop(in_thread, pipeline.close_stage, number):
            yield out


def _is_boundary(batch: Sequence[AnyEvent]) -> bool:
    """Whether the response begins or ends: only there the work of a stage may grow with the request."""
    return isinstance(batch[0], Start) or isinstance(batch[-1], Finish | Failure)


async def _reask(
    generate: Generate, reask: ReaskRequest, context: ExchangeContext, stage: EventStage, timeout_s: float
) -> None:
    """Collects a second response for the stage."""
    second_context = msgspec.structs.replace(context, reasked=True)
    events: list[AnyEvent] = []
    failed = True
    try:
        async with asyncio.timeout(timeout_s), aclosing(generate(reask.request, second_context)) as batches:
            async for batch in batches:
                events += batch
                if isinstance(batch[-1], Failure):
                    raise batch[-1].error
        failed = False
    except UsageError:  # a bug in Dragoman itself
        raise
    except TimeoutError:
        log.warning("the model could not be re-asked: it took more than %g s", timeout_s)
    except DragomanError as error:
        log.warning("the model could not be re-asked: %s", loggable_message(error))
    stage.merge_reask(events, failed=failed)
