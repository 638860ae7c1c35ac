"""Checks responses against a schema that the backend could not constrain the model to, because tools are offered too.

The backend reports this by the warning `constraint_not_applied` named `response_format`. The text of such a response
is buffered and checked at its end. If it is not JSON of the schema, the model is re-asked once; if the second response
does not match either, the first one is sent with a warning. Responses with a tool call are not checked: their text is
not the reply.
"""

import asyncio
import dataclasses
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.errors import DragomanError, UsageError, loggable_message
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, TextDelta, ToolCallStart, UsageUpdate
from dragoman.core.messages import Message, Request, Text, Usage, add_usage
from dragoman.guard.policy import GuardPolicy
from dragoman.guard.validation.compiled_schema import CompiledSchema, decode_arguments

log = logging.getLogger("dragoman.guard")

RESPONSE_FORMAT: Final = "response_format"
"""The name of the reply's schema in warnings."""


async def check_reply_schema(
    answer: AsyncGenerator[AnyEvent, None],
    backend: Backend,
    request: Request,
    context: ExchangeContext,
    policy: GuardPolicy,
) -> AsyncGenerator[AnyEvent, None]:
    """Yields the response's events; checks the text if the backend reports that it was not constrained.

    Args:
        answer: The events of the first response.
        backend: The backend, which may be asked a second time.
        request: The request, with `response_schema`.
        context: The exchange that the response is part of.
        policy: The settings of the guard.

    Raises:
        DragomanError: Before Start only; later, the stream ends with Failure.
    """
    waiting: list[TextDelta] | None = None
    usage: Usage | None = None
    async with aclosing(answer) as events:
        async for event in events:
            match event:
                case Notice("reasked" | "reask_failed"):  # a third response would be too many
                    policy = replace(policy, reask=False)
                case Notice("constraint_not_applied", detail=detail) if detail == RESPONSE_FORMAT:
                    waiting = []
                case TextDelta() if waiting is not None:
                    waiting.append(event)
                    continue
                case UsageUpdate(counts):
                    usage = counts
                case ToolCallStart() | Failure() if waiting is not None:
                    for delta in waiting:
                        yield delta
                    waiting = None
                case Finish() if waiting is not None:
                    async for each in _check_text(
                        "".join(d.text for d in waiting), backend, request, context, policy, usage
                    ):
                        yield each
            yield event


_FENCED: Final = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_MAX_VIOLATIONS: Final = 5
"""Violations that are shown to the model."""


async def _check_text(
    text: str, backend: Backend, request: Request, context: ExchangeContext, policy: GuardPolicy, usage: Usage | None
) -> AsyncGenerator[AnyEvent, None]:
    """Yields the text if it matches, or a second response that does, or the first with a warning."""
    schema = CompiledSchema(request.response_schema)
    fitting, why = _matching_json(text, schema)
    if not fitting and policy.reask:
        yield Notice(
            "reasked", f"the reply does not match its schema: {why}; the model was re-asked", detail=RESPONSE_FORMAT
        )
        second = await _reask(text, why, backend, request, context, policy)
        fitting, _ = _matching_json(second.text, schema)
        if usage and second.usage:
            yield UsageUpdate(add_usage(usage, second.usage))
    if not fitting:
        yield Notice("reask_failed", f"the reply does not match its schema: {why}", detail=RESPONSE_FORMAT)
    yield TextDelta(fitting or text)


def _matching_json(text: str, schema: CompiledSchema) -> tuple[str, str]:
    """The JSON in the text, without a code fence around all of it, if it matches the schema; else why it does not."""
    fenced = _FENCED.fullmatch(text)
    candidate = fenced[1] if fenced else text
    try:
        value = decode_arguments(candidate)
    except ValueError:
        return "", "it is not JSON"
    problems = schema.violations(value)
    return ("", "; ".join(each.message for each in problems[:_MAX_VIOLATIONS])) if problems else (candidate, "")


class _Reask(NamedTuple):
    text: str = ""
    usage: Usage | None = None


async def _reask(
    text: str, why: str, backend: Backend, request: Request, context: ExchangeContext, policy: GuardPolicy
) -> _Reask:
    """The text of the second response; empty if there is none, or if it contains a call."""
    prompt = f"Your answer is not JSON of the JSON Schema: {why}. Answer with that JSON alone, without other text."
    turns = (Message("assistant", (Text(text),)), Message("user", (Text(prompt),)))
    tokens = min(request.max_tokens or policy.reask_max_tokens, policy.reask_max_tokens)
    outgoing = replace(request, messages=(*request.messages, *turns), max_tokens=tokens)
    second_turn = dataclasses.replace(context, reasked=True)
    texts: list[str] = []
    usage: Usage | None = None
    try:
        async with asyncio.timeout(policy.reask_timeout_s), aclosing(second_turn.generate(backend, outgoing)) as events:
            async for event in events:
                match event:
                    case TextDelta(more):
                        texts.append(more)
                    case UsageUpdate(counts):
                        usage = counts
                    case ToolCallStart():
                        return _Reask(usage=usage)
                    case Failure(error):
                        raise error
    except UsageError:  # a bug in Dragoman itself
        raise
    except (TimeoutError, DragomanError) as error:
        message = (
            loggable_message(error)
            if isinstance(error, DragomanError)
            else f"it took more than {policy.reask_timeout_s:g} s"
        )
        log.warning("the model could not be re-asked for a reply that matches its schema: %s", message)
        return _Reask()
    return _Reask("".join(texts), usage)
