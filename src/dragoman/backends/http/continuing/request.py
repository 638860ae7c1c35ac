"""Requests that have a server continue a text: with a prompt that is rendered here, and ends with the text."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dragoman.backends.continuation import may_constrain
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.upstream_response import ResponseBody
from dragoman.backends.text_mode import completions
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import UnsupportedError, quote
from dragoman.core.events import Failure, Start


async def continue_text(
    plan_request: Callable[[], RequestPlan],
    post: Callable[[bytes], Awaitable[ResponseBody]],
    text: str,
    context: ExchangeContext,
) -> EventStream:
    """Yields the rest of a text; see `Backend.continue_text`.

    Args:
        plan_request: Plans the request for the whole response; called in a thread.
        post: Sends a body.
        text: The text so far.
        context: The exchange.

    Raises:
        UnsupportedError: The server renders prompts itself, or its model writes another format.
        RemoteError: The server failed.
    """
    plan = await asyncio.to_thread(plan_request)
    body = await post(rest_of(plan, text, context))
    reader = completions.CompletionReader(plan.request, context)
    try:
        is_open = True
        while is_open:
            piece = await body.read()
            is_open = bool(piece)
            events = reader.feed(piece) if piece else reader.close()
            if content := [event for event in events if type(event) is not Start and type(event) is not Failure]:
                yield content
            if events and type(last := events[-1]) is Failure:
                raise last.error
    finally:
        await body.close()


def rest_of(plan: RequestPlan, text: str, context: ExchangeContext) -> bytes:
    """Returns the body of the request that has the server continue a text.

    Args:
        plan: The plan of the request for the whole response.
        text: The text so far.
        context: The exchange.

    Raises:
        UnsupportedError: The server would write another format.
    """
    own, expected = plan.format.name if plan.format else "", context.attempts.format
    if own != expected:
        raise UnsupportedError(f"expected a model that writes the format {quote(expected)}, got one of {quote(own)}")
    body: dict[str, Any] = msgspec.json.decode(plan.upstream.body)
    body["prompt"] += text
    if not may_constrain(plan.request, plan.format, text):
        for name in plan.constraint.fields:
            body.pop(name, None)  # absent if the server has rejected it
    return msgspec.json.encode(body)
