"""Adapts one backend's events for the client: adds missing token counts, removes events that the client cannot use."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice
from dragoman.core.messages import COMPLETE_FINISHES, Request
from dragoman.gateway.client_events import ClientEventFilter, has_content
from dragoman.gateway.usage import UsageFiller
from dragoman.guard.policy import GuardPolicy
from dragoman.wire.context_edits import EditedRequest


async def events_for_client(
    answer: AsyncGenerator[AnyEvent, None],
    edit: EditedRequest,
    request: Request,
    warnings: tuple[Notice, ...],
    large: bool,
) -> AsyncGenerator[AnyEvent, None]:
    """Yields the events of one backend's response as the client gets them.

    Args:
        answer: The events of the backend.
        edit: The request that the backend got, with the context edits that were made.
        request: The request of the client.
        warnings: Warnings to send after Start.
        large: Whether token counts are estimated in a thread.

    Raises:
        DragomanError: Before Start; later the stream ends with Failure.
    """
    early = bool(request.dialect) and dialects.get(request.dialect).usage_in_first_event
    usage = UsageFiller(edit.request, tokenizers.find(edit.request.model), early=early)
    warnings += edit.warnings
    has_started, has_text, client = False, False, ClientEventFilter(request, warnings)
    async with aclosing(answer) as events:
        try:
            async for event in events:
                if isinstance(event, Failure) and not has_started:
                    raise event.error
                has_started, has_text = True, has_text or has_content(event)
                if not has_text and isinstance(event, Finish) and event.reason in COMPLETE_FINISHES:
                    yield Notice("empty_answer", "the response has neither text nor a tool call")
                if large and usage.needs_estimate(event):
                    await asyncio.to_thread(usage.estimate)
                for each in client.feed((*edit.before(event), *usage.feed(event))):
                    yield each
                if isinstance(event, Finish | Failure):
                    return
            raise BackendUnavailableError("the backend ended without finishing its response")
        except DragomanError as error:
            if not has_started:
                raise
            yield Failure(error)


def has_functions(request: Request) -> bool:
    """Returns whether functions are offered, so that the response can contain calls."""
    return any(tool.kind == "function" for tool in request.tools)


def guarded_events(
    backend: Backend, request: Request, context: ExchangeContext, policy: GuardPolicy | None
) -> AsyncGenerator[AnyEvent, None]:
    """Returns the events of a backend, its calls validated by the guard.

    Args:
        backend: The backend.
        request: The request to send to it.
        context: The exchange that the response is part of.
        policy: The settings of the guard; None: calls are not validated.
    """
    if policy is None:
        return context.generate(backend, request)
    # Both modules need an extra that not all users of the gateway have.
    from dragoman.gateway.guarded_stream import guard_stream

    answer = guard_stream(backend, request, context, policy)
    if not (request.response_schema and has_functions(request)):
        return answer
    from dragoman.gateway.reply_schema_check import check_reply_schema

    return check_reply_schema(answer, backend, request, context, policy)
