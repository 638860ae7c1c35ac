"""Asks the hooks about each call of a response before the guard gets the call's end.

    generate = CallVeto(guard, hooks, request).wrap(attempt.generate)

A batch is split before each end of a call. When the part before it has passed the guard, the guard knows the call as it
would be sent, repaired, and the hooks are asked about that. The calls of a second response are known at its end.
"""

from collections.abc import Iterator, Sequence
from contextlib import aclosing

from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.events import AnyEvent, Failure, Finish, ToolCallEnd
from dragoman.core.messages import Request, ToolCall
from dragoman.gateway.hooks.hook_runner import HookRunner
from dragoman.gateway.response_stream import Generate
from dragoman.guard.veto_guard import VetoGuard


class CallVeto:
    """The decisions of hooks about the calls of one response."""

    def __init__(self, guard: VetoGuard, hooks: HookRunner, request: Request) -> None:
        """
        Args:
            guard: The guard that the events pass first.
            hooks: The hooks.
            request: The request, for the hooks.
        """
        self._guard, self._hooks, self._request = guard, hooks, request

    def wrap(self, generate: Generate) -> Generate:
        """Returns a generator of the same events, in which each call is decided about before its end comes."""

        def decided(request: Request, context: ExchangeContext) -> EventStream:
            events = generate(request, context)
            return self._decide_at_end(events) if context.reasked else self._decide_each(events)

        return decided

    async def _decide_each(self, events: EventStream) -> EventStream:
        async with aclosing(events) as batches:
            async for batch in batches:
                for part in _split(batch):
                    if isinstance(part[0], ToolCallEnd):
                        await self._decide(self._guard.calls_ended_by(part[0]))
                    yield part

    async def _decide_at_end(self, events: EventStream) -> EventStream:
        received: list[AnyEvent] = []
        async with aclosing(events) as batches:
            async for batch in batches:
                received += batch
                if batch and isinstance(batch[-1], Finish | Failure):
                    await self._decide(self._guard.calls_in(received))
                yield batch

    async def _decide(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            self._guard.decide(call, await self._hooks.veto(call, self._request))


def _split(batch: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    """Yields the parts of a batch, each of which begins with the end of a call, except for the first."""
    if len(batch) <= 1:
        if batch:
            yield batch
        return
    ends = [number for number, event in enumerate(batch) if type(event) is ToolCallEnd]
    starts = [0, *(number for number in ends if number)]
    for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
        yield batch[start:end]
