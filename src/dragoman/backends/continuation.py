"""Continues the text of a response whose backend failed in the middle of it.

    prompt + text so far → another replica, or the same server once it is back → the rest of the text

The client's stream pauses meanwhile, and contains no error. Only the model's raw text is continued: the parser of the
first backend reads the rest too, so calls keep their ids, and stop strings may span the failure.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

import msgspec

from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.errors import DragomanError, RemoteError, UpstreamError, loggable_message
from dragoman.core.events import AnyEvent, Finish, Notice, TextDelta, UsageUpdate
from dragoman.core.messages import Request, Usage, known_tools
from dragoman.parsing.format import Format

log = logging.getLogger("dragoman.backends")

MAX_CONTINUATIONS: Final = 3
"""How often one text is continued."""
PATIENCE_S: Final = 30.0
"""How long a backend is looked for that continues a text."""
FIRST_DELAY_S: Final = 0.25
"""Waiting time after no backend could continue the text; it doubles each time, up to `MAX_DELAY_S`."""
MAX_DELAY_S: Final = 4.0


_Opened: TypeAlias = tuple[Sequence[AnyEvent], EventStream]
"""The first events of a response that continues a text, and the others."""


def is_outage(error: DragomanError) -> bool:
    """Returns whether the error is about the server, not about the request, so that another one may do better."""
    if isinstance(error, UpstreamError) and error.status is not None:
        return error.status >= 500 or error.status in (408, 429)
    return isinstance(error, RemoteError)


def may_constrain(request: Request, format: Format | None, text: str) -> bool:
    """Returns whether the constraint of a whole response also describes what can follow this text of it.

    Args:
        request: The request.
        format: The format in which the model writes calls.
        text: The text so far.
    """
    if not text:
        return True
    if request.tool_choice.mode != "auto" or request.response_schema or format is None:
        return False
    constraint = format.constrain(known_tools(request.tools), request.tool_choice)
    return constraint is None or (constraint.trigger not in text and text.lstrip()[:1] not in ("{", "[", "`"))


def continued_notice(failed: str, backend: str, error: DragomanError) -> Notice:
    """Returns the warning that a text is continued.

    Args:
        failed: Name of the backend that failed.
        backend: Name of the one that continues its text.
        error: The failure.
    """
    message = f"{failed} failed in the middle of its response ({loggable_message(error)}); {backend} continues the text"
    log.warning("%s", message)
    return Notice("continued", message, detail=f"{failed} > {backend}")


class TextContinuation:
    """The text of one response, and the backends that can continue it."""

    def __init__(self, request: Request, texts: Sequence[str], context: ExchangeContext) -> None:
        """
        Args:
            request: The request of the backend that failed.
            texts: The pieces of the model's text so far, each about one token.
            context: The exchange; the backends are its `attempts.replicas`.
        """
        self._request, self._texts, self._context = request, list(texts), context
        self._usage: Usage | None = None

    async def events(self, error: DragomanError) -> EventStream:
        """Yields a warning, then the rest of the text, and Finish at its end; see `Backend.continue_text`.

        Args:
            error: Why the backend failed.

        Raises:
            DragomanError: No backend can continue the text: the last error.
        """
        for _ in range(MAX_CONTINUATIONS):
            if not is_outage(error):
                break
            if self._tokens_left() == 0:
                yield [Finish("length")]
                return
            try:
                async with aclosing(self._rest(error)) as batches:
                    async for batch in batches:
                        yield batch
                return
            except DragomanError as raised:
                error = raised
                if isinstance(error, _NoReplicaError):
                    raise error.last from None
        raise error

    async def _rest(self, error: DragomanError) -> EventStream:
        """Yields what the first backend that continues the text writes."""
        failed = self._context.attempts.upstream
        first, batches = await self._open(error)
        before = len(self._texts)
        async with aclosing(batches):
            yield [continued_notice(failed, self._context.attempts.upstream, error), *self._counted(first, before)]
            async for batch in batches:
                yield self._counted(batch, before)

    async def _open(self, error: DragomanError) -> _Opened:
        """Returns the first events of a backend that continues the text, and the others.

        Raises:
            _NoReplicaError: None does.
        """
        attempts = self._context.attempts
        failed = (attempts.upstream, attempts.model)
        able = sorted(attempts.replicas, key=lambda replica: _preference(replica, failed))
        ends_s, delay_s = time.monotonic() + PATIENCE_S, FIRST_DELAY_S
        attempts.fail(error)
        while True:
            opened = await self._ask_each(able)
            if not isinstance(opened, DragomanError | None):
                return opened
            error = opened or error
            if not able or time.monotonic() + delay_s > ends_s:
                raise _NoReplicaError(error)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_DELAY_S)

    async def _ask_each(self, able: list[tuple[Backend, Request]]) -> _Opened | DragomanError | None:
        """Returns the first response that begins, or the last error of a server; removes backends that refuse."""
        error = None
        for replica in tuple(able):
            try:
                return await self._ask(*replica)
            except DragomanError as raised:
                self._context.attempts.fail(raised)
                if is_outage(raised):
                    error = raised
                else:
                    able.remove(replica)
        return error

    async def _ask(self, backend: Backend, routed: Request) -> _Opened:
        request = msgspec.structs.replace(self._request, model=routed.model, max_tokens=self._tokens_left())
        self._context.attempts.begin(backend.name, routed.model)
        batches = backend.continue_text(request, "".join(self._texts), self._context)
        try:
            first = await anext(batches, None)
        except BaseException:
            await batches.aclose()
            raise
        if first is None:
            raise UpstreamError("the response ended before it was complete")
        return first, batches

    def _tokens_left(self) -> int | None:
        most = self._request.max_tokens
        return None if most is None else max(0, most - len(self._texts))

    def _counted(self, events: Sequence[AnyEvent], before: int) -> Sequence[AnyEvent]:
        """Returns the events with token counts of the whole response, and adds their text."""
        if len(events) == 1 and type(events[0]) is TextDelta:
            self._texts.append(events[0].text)
            return events
        self._texts += [event.text for event in events if type(event) is TextDelta]
        return [
            UsageUpdate(whole_usage(event.usage, before)) if type(event) is UsageUpdate else event for event in events
        ]


def whole_usage(usage: Usage, before: int) -> Usage:
    """Returns the usage of a whole response.

    Args:
        usage: That of its last part, whose prompt contains the text before.
        before: Number of tokens of that text.
    """
    prompt = max(0, usage.input_tokens - before)
    return msgspec.structs.replace(
        usage,
        input_tokens=prompt,
        output_tokens=usage.output_tokens + before,
        cached_input_tokens=min(usage.cached_input_tokens, prompt),
    )


def _preference(replica: tuple[Backend, Request], failed: tuple[str, str]) -> tuple[bool, bool]:
    """Returns the sort key: other backends with the same model, then the one that failed, then other models."""
    backend, routed = replica
    return routed.model != failed[1], backend.name == failed[0]


class _NoReplicaError(RemoteError):
    """No backend can continue the text."""

    def __init__(self, last: DragomanError) -> None:
        super().__init__(last.message)
        self.last = last
