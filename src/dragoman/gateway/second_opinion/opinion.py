"""Answers the re-asks of one response: by another model, or by several samples of the same one.

    re-ask ─ the other model ─ may not be used ─ the same model: one sample, or several and a vote
                            ├ fails at once ─── the same model: one sample
                            └ answers, breaks off or is late ─→ the guard

That is still one re-ask: a second response that is not valid either leads to no further one. The time limit is one for
all of it. The other model gets neither reasoning nor signatures of the first, nor examples learned for it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from dragoman.catalog import tokenizers
from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.errors import DragomanError, RemoteError, RequestError, UsageError, loggable_message, quote
from dragoman.core.events import AnyEvent, Finish, Notice, Start, UsageUpdate
from dragoman.core.messages import Message, Part, Reasoning, Request, Tool, ToolCall, Usage, add_usage
from dragoman.core.stage import ReaskRequest
from dragoman.gateway.response_stream import BackendAttempt, Generate, SecondResponse, collect_events, log_timeout
from dragoman.gateway.routing.router import ModelRoute, Router, backend_name, rerouted
from dragoman.gateway.second_opinion.ballot import Election, elect
from dragoman.gateway.second_opinion.costs import CostSum
from dragoman.gateway.usage import UsageFiller
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.off_loop import off_loop
from dragoman.wire.context_edits import apply_edits_for, without_thinking_edits

log = logging.getLogger("dragoman.guard")

TEMPERATURE: Final = 0.7
"""Temperature of all samples but the first, where the request has none or 0: at 0 they would all be the same."""


@dataclass
class _Collected:
    """What the second responses have led to so far."""

    vote: Callable[[Sequence[AnyEvent]], Hashable | None] | None = None
    """What responses are compared by; None: there is one."""
    samples: dict[int, list[AnyEvent]] = field(default_factory=dict)
    """The complete responses, by their numbers."""
    keys: dict[int, Hashable | None] = field(default_factory=dict)
    """What they are compared by."""
    usage: Usage | None = None
    """The tokens of all, also of those that failed."""
    notices: list[Notice] = field(default_factory=list)
    made: int = 0
    """Samples that were requested."""
    has_begun: bool = False
    """Whether one response has begun."""

    def add_usage(self, used: Usage, *, is_estimate: bool) -> None:
        """Adds the tokens of one response."""
        self.usage = used if self.usage is None else add_usage(self.usage, used)
        if is_estimate and all(each.code != "estimated_usage" for each in self.notices):
            message = "a second response did not report its counts; they are estimated"
            self.notices.append(Notice("estimated_usage", message))

    async def add(self, number: int, events: list[AnyEvent], attempt: BackendAttempt) -> None:
        """Adds a complete response; what a large request's is compared by is found out in a thread."""
        self.samples[number] = events
        if self.vote is not None:
            self.keys[number] = await off_loop(attempt.in_thread, self.vote, events)

    def elect(self) -> tuple[int, Election]:
        """Returns the number of the response that is used, and the result of the vote."""
        numbers = sorted(self.keys)
        election = elect([self.keys[number] for number in numbers], self.made)
        return numbers[election.winner], election

    def is_certain(self, most: int) -> bool:
        """Returns whether more responses, up to this number, cannot change which one is used."""
        return bool(self.keys) and self.elect()[1].is_certain(most)

    def response(self, number: int) -> SecondResponse:
        """Returns the response of this number, with the tokens of all; a failed one if there is none."""
        chosen = self.samples.get(number, [])
        events = [each for each in chosen if type(each) is not UsageUpdate]
        if self.usage is not None:
            events.insert(1 if events and type(events[0]) is Start else 0, UsageUpdate(self.usage))
        return SecondResponse(events, failed=not chosen, notices=self.notices)


class SecondOpinion:
    """Answers the re-asks of one response; `answer` is the function for `BackendAttempt.answer_reask`."""

    def __init__(self, router: Router, name: str, samples: int, first: ModelRoute, costs: CostSum) -> None:
        """
        Args:
            router: Finds the other model.
            name: The other model; empty: there is none.
            samples: Responses of the same model.
            first: The route of the first response.
            costs: Sums the costs.
        """
        self._router, self._name, self._samples, self._first, self.costs = router, name, samples, first, costs
        self.runs_tools = False
        """Whether the gateway runs tools of the response: their limits and results belong to the first model."""

    async def answer(self, attempt: BackendAttempt, reask: ReaskRequest) -> SecondResponse:
        """Returns the second response.

        Args:
            attempt: The first response.
            reask: The request for the second one.
        """
        collected = _Collected()
        try:
            async with asyncio.timeout(attempt.reask_timeout_s):
                count = await self._ask_other(attempt, reask, collected) if self._name else self._planned(reask)
                if count > 1 and attempt.context.reserve is not None and not await attempt.context.reserve(count - 1):
                    log.info("the model is re-asked once: the API key has no tokens left in this minute for samples")
                    count = 1
                collected.vote = reask.vote if count > 1 else None
                await self._sample(attempt, reask, count, collected)
        except TimeoutError:
            log_timeout(attempt)
            codes = {each.code for each in collected.notices}
            if self._name and not (collected.samples or "second_opinion_failed" in codes):
                late = f"{quote(self._name)} did not answer within {attempt.reask_timeout_s:g} s"
                collected.notices.append(Notice("second_opinion_failed", late, detail=self._name))
        if not collected.keys:
            return collected.response(0)
        number, election = collected.elect()
        used = collected.usage or Usage()
        collected.notices.append(election.notice(f"{used.input_tokens} input and {used.output_tokens} output tokens"))
        return collected.response(number)

    async def _ask_other(self, attempt: BackendAttempt, reask: ReaskRequest, collected: _Collected) -> int:
        """Asks the other model. Returns the number of samples of the first model that are needed after that."""
        routes, reason = await self._routes(attempt, reask)
        if routes and routes[0].backend is self._first.backend and routes[0].request.model == self._first.request.model:
            return self._planned(reask)
        attempts = attempt.context.attempts
        own, restore_own = (attempts.upstream, attempts.model), attempts.answering()
        attempts.replicas, failed = routes, None
        try:
            for number, route in enumerate(routes):
                failed = await self._ask_route(number, route, attempt, collected)
                if failed is None or collected.has_begun or not isinstance(failed, RemoteError):
                    break
            if routes and not collected.has_begun:
                attempts.begin(*own)
        finally:
            if not collected.samples:  # also where the time is over
                restore_own()
        if collected.samples:
            return 0
        if failed is not None:
            reason = f"{attempts.failed[-1][0]} could not answer ({loggable_message(failed)})"
        log.warning("no second opinion of %s: %s", quote(self._name), reason)
        message = f"{quote(self._name)} was not re-asked: {reason}; the first model was"
        if collected.has_begun:
            message = f"{quote(self._name)} was re-asked, but {reason}"
        collected.notices.append(Notice("second_opinion_failed", message, detail=self._name))
        if failed is None:
            return self._planned(reask)
        return 0 if collected.has_begun else 1

    async def _ask_route(
        self, number: int, route: ModelRoute, attempt: BackendAttempt, collected: _Collected
    ) -> DragomanError | None:
        """Asks one backend of the other model. Returns the error if it failed."""
        (backend, request), attempts = route, attempt.context.attempts
        name = backend_name(backend)
        if number:
            attempts.begin(name, request.model)
        else:
            attempts.upstream, attempts.model = name, request.model
            self.costs.begin()
        failed = await self._try(self._generate(attempt, backend), request, 0, attempt, collected)
        if failed is None:
            message = f"{request.model} of {name} was re-asked instead"
            collected.notices.append(Notice("second_opinion", message, detail=request.model))
        else:
            attempts.fail(failed)
        return failed

    async def _routes(self, attempt: BackendAttempt, reask: ReaskRequest) -> tuple[list[ModelRoute], str]:
        """Returns the backends of the other model; empty with the reason why it cannot be asked."""
        if self.runs_tools:
            return [], "the gateway runs tools of this response"
        request = await off_loop(attempt.in_thread, for_another_vendor, reask.request)
        routes = self._router.permitted_routes(self._name, request, attempt.context.client)
        if not routes:
            return [], "no backend serves it now, or the API key may not use it"
        routes = [each for each in routes if client_run_tools.with_functions(each.request, each)[0] is each.request]
        try:
            edited = [rerouted(each, await off_loop(attempt.in_thread, _with_edits, each)) for each in routes]
        except RequestError as error:  # the first server edits the context itself, and may accept more
            return [], loggable_message(error)
        return edited, "" if routes else "the request has tools of another API"

    def _generate(self, attempt: BackendAttempt, backend: Backend) -> Generate:
        def generate(request: Request, context: ExchangeContext) -> EventStream:
            return context.generate(backend, request)

        return generate if attempt.wrap is None else attempt.wrap(generate)

    def _planned(self, reask: ReaskRequest) -> int:
        """Returns the number of samples."""
        return 1 if reask.vote is None or self.runs_tools else self._samples

    async def _sample(self, attempt: BackendAttempt, reask: ReaskRequest, count: int, collected: _Collected) -> None:
        """Collects the samples of the same model: at once, or in turn until the vote is certain."""
        backend, context = self._first.backend, attempt.context
        requests = [_sample_request(reask.request, number) for number in range(count)]
        # Observers and spans of an exchange record one generation at a time.
        in_turn = backend.answers_in_turn or context.observer is not None or context.attempts.spans is not None
        if in_turn or count == 1:
            for number, request in enumerate(requests):
                if not collected.is_certain(count):
                    await self._try_sample(request, number, attempt, collected)
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                for number, request in enumerate(requests):
                    tasks.create_task(self._try_sample(request, number, attempt, collected))
        except ExceptionGroup as group:  # a bug in Dragoman itself: one error is enough
            raise group.exceptions[0] from group

    async def _try_sample(self, request: Request, number: int, attempt: BackendAttempt, collected: _Collected) -> None:
        attempts = attempt.context.attempts
        collected.made += 1
        if number:
            attempts.repeats.append((attempts.upstream, "reask"))
            attempts.count += 1
        if failed := await self._try(attempt.generate, request, number, attempt, collected):
            log.warning("the model could not be re-asked: %s", loggable_message(failed))

    async def _try(
        self, generate: Generate, request: Request, number: int, attempt: BackendAttempt, collected: _Collected
    ) -> DragomanError | None:
        """Collects one response. Returns the error if it failed."""
        context, events, began_s = replace(attempt.context, reasked=True), list[AnyEvent](), time.monotonic()
        upstream, model = context.attempts.upstream, context.attempts.model
        try:
            await collect_events(generate(request, context), events)
            await collected.add(number, events, attempt)
            return None
        except UsageError:  # a bug in Dragoman itself
            raise
        except DragomanError as error:
            return error
        finally:
            if events:
                collected.has_begun, seconds = True, time.monotonic() - began_s
                reported = next((each.usage for each in reversed(events) if type(each) is UsageUpdate), None)
                used = reported
                if used is None:
                    used = await off_loop(attempt.in_thread, _estimated_usage, request, events)
                collected.add_usage(used, is_estimate=reported is None)
                self.costs.add(upstream, model, used, seconds)


def _sample_request(request: Request, number: int) -> Request:
    """Returns the request for a sample: the first is the usual re-ask, the others have a temperature and seeds."""
    sampling = request.sampling
    if not number:
        return request
    seed = (sampling.seed or 0) + number
    return replace(request, sampling=replace(sampling, temperature=sampling.temperature or TEMPERATURE, seed=seed))


def _estimated_usage(request: Request, events: Sequence[AnyEvent]) -> Usage:
    """Returns the tokens of a response that did not report them, as one that broke off."""
    filler = UsageFiller(request, tokenizers.find(request.model), early=False)
    filled = filler.feed([*(each for each in events if type(each) is not Finish), Finish("stop")])
    return next(each.usage for each in filled if type(each) is UsageUpdate)


def _with_edits(route: ModelRoute) -> Request:
    """Returns the request with its context edits carried out, unless this backend's server does that."""
    return apply_edits_for(route.backend, route.request, tokenizers.find(route.request.model)).request


def for_another_vendor(request: Request) -> Request:
    """Returns the request without what its vendor alone may get: reasoning, signatures and learned examples."""
    messages: list[Message] = []
    for message in request.messages:
        if message.role != "assistant":
            messages.append(message)
            continue
        parts = tuple(_without_extra(part) for part in message.parts if type(part) is not Reasoning)
        if parts or not message.parts:
            messages.append(replace(message, parts=parts, extra={}, verbatim_text=""))
    edited = without_thinking_edits(request)
    extra = {name: value for name, value in edited.extra.items() if name != "thinking"}  # which needs past reasoning
    tools, prompt_tools = _without_examples(request.tools), _without_examples(request.prompt_tools)
    return replace(request, messages=tuple(messages), extra=extra, tools=tools, prompt_tools=prompt_tools)


def _without_extra(part: Part) -> Part:
    """Returns a call without the fields of its vendor, where signatures may be."""
    return replace(part, extra={}) if type(part) is ToolCall and part.extra else part


def _without_examples(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    if any(each.examples for each in tools):
        return tuple(replace(each, examples=()) for each in tools)
    return tools
