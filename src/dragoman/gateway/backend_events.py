"""One backend's answer as the client gets it: with missing token counts, and without events that it may not see."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice
from dragoman.core.messages import Request
from dragoman.gateway.client_events import OF_ITSELF, ForClient, says
from dragoman.gateway.usage import UsageFiller
from dragoman.wire.context_edits import EditedRequest


async def answered(
    answer: AsyncGenerator[AnyEvent, None],
    edit: EditedRequest,
    request: Request,
    warnings: tuple[Notice, ...],
    large: bool,
) -> AsyncGenerator[AnyEvent, None]:
    """What one backend answers, as it is for the client who sent the request; what is told of that, behind Start.

    Raises: DragomanError: before Start; later the stream ends with Failure.
    """
    early = bool(request.dialect) and dialects.get(request.dialect).early_usage
    usage = UsageFiller(edit.request, tokenizers.find(edit.request.model), early=early)
    warnings += edit.warnings
    begun, said, client = False, False, ForClient(request, warnings)
    async with aclosing(answer) as events:
        try:
            async for event in events:
                if isinstance(event, Failure) and not begun:
                    raise event.error
                begun, said = True, said or says(event)
                if not said and isinstance(event, Finish) and event.reason in OF_ITSELF:
                    yield Notice("empty_answer", "the model ended its answer without text and without a call")
                if large and usage.needs_estimate(event):
                    await asyncio.to_thread(usage.estimate)
                for each in client.pass_on((*edit.before(event), *usage.pass_on(event))):
                    yield each
                if isinstance(event, Finish | Failure):
                    return
            raise BackendUnavailableError("the backend ended without finishing its answer")
        except DragomanError as error:
            if not begun:
                raise
            yield Failure(error)
