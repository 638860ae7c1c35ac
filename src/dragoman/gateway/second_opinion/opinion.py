"""Answers the re-asks of one response: by another model, or by several samples of the same one.

    re-ask ─ the other model ─ fails, or may not be used ─ the same model: one sample, or several and a vote
                            └ answers                    └ ……………………………………………………………………………………………………… → the guard

That is still one re-ask: a second response that is not valid either leads to no further one. The time limit is one for
all of it. The other model gets neither reasoning nor signatures of the first.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.errors import DragomanError, RemoteError, UsageError, loggable_message, quote
from dragoman.core.events import AnyEvent, Notice, Start, UsageUpdate
from dragoman.core.messages import Message, Reasoning, Request, Usage, add_usage
from dragoman.core.stage import ReaskRequest
from dragoman.gateway.response_stream import BackendAttempt, Generate, SecondResponse, collect_events, log_timeout
from dragoman.gateway.routing.router import ModelRoute, Router, backend_name
from dragoman.gateway.second_opinion.ballot import Election, elect
from dragoman.gateway.second_opinion.costs import CostSum
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.off_loop import off_loop

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

    def add_usage(self, events: Sequence[AnyEvent]) -> Usage | None:
        """Adds the tokens of one response, and returns them; None: they are not known."""
        used = next((each.usage for each in reversed(events) if type(each) is UsageUpdate), None)
        if used is not None:
            self.usage = used if self.usage is None else add_usage(self.usage, used)
        return used

    async def add(self, number: int, events: list[AnyEvent], attempt: BackendAttempt) -> None:
        """Adds a complete response; what a large request's is compared by is found out in a thread."""
        self.samples[number] = events
        if self.vote is not None:
            self.keys[number] = await off_loop(attempt.in_thread, self.vote, events)

    def elect(self) -> tuple[int, Election]:
        """Returns the number of the response that is used, and the result of the vote."""
        numbers = sorted(self.keys)
        election = elect([self.keys[number] for number in numbers])
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
        count = self._planned(reask)
        collected = _Collected(reask.vote if count > 1 else None)
        try:
            async with asyncio.timeout(attempt.reask_timeout_s):
                if self._name and await self._ask_other(attempt, reask, collected):
                    return collected.response(0)
                await self._sample(attempt, reask, count, collected)
        except TimeoutError:
            log_timeout(attempt)
            if self._name and not (collected.samples or collected.notices):
                late = f"{quote(self._name)} did not answer within {attempt.reask_timeout_s:g} s"
                collected.notices.append(Notice("second_opinion_failed", late, detail=self._name))
        if not collected.keys:
            return collected.response(0)
        number, election = collected.elect()
        used = collected.usage or Usage()
        collected.notices.append(election.notice(f"{used.input_tokens} input and {used.output_tokens} output tokens"))
        return collected.response(number)

    async def _ask_other(self, attempt: BackendAttempt, reask: ReaskRequest, collected: _Collected) -> bool:
        """Asks the other model. Returns whether it has answered; False with a warning, unless it is the same model."""
        routes, reason = await self._routes(attempt, reask)
        if routes and routes[0].backend is self._first.backend and routes[0].request.model == self._first.request.model:
            return False
        attempts = attempt.context.attempts
        own, replicas = (attempts.upstream, attempts.model), attempts.replicas
        attempts.replicas = routes
        for number, (backend, request) in enumerate(routes):
            if number:
                attempts.begin(backend_name(backend), request.model)
            else:
                attempts.upstream, attempts.model = backend_name(backend), request.model
                self.costs.begin()
            failed = await self._try(self._generate(attempt, backend), request, 0, attempt, collected)
            if failed is None:
                message = f"{request.model} of {backend_name(backend)} was re-asked instead"
                collected.notices.append(Notice("second_opinion", message, detail=request.model))
                return True
            attempts.fail(failed)
            reason = f"{backend_name(backend)} could not answer ({loggable_message(failed)})"
            if not isinstance(failed, RemoteError):
                break
        attempts.replicas = replicas
        if routes:
            attempts.begin(*own)
        log.warning("no second opinion of %s: %s", quote(self._name), reason)
        message = f"{quote(self._name)} was not re-asked: {reason}; the first model was"
        collected.notices.append(Notice("second_opinion_failed", message, detail=self._name))
        return False

    async def _routes(self, attempt: BackendAttempt, reask: ReaskRequest) -> tuple[list[ModelRoute], str]:
        """Returns the backends of the other model; empty with the reason why it cannot be asked."""
        if self.runs_tools:
            return [], "the gateway runs tools of this response"
        request = await off_loop(attempt.in_thread, without_reasoning, reask.request)
        routes = self._router.permitted_routes(self._name, request, attempt.context.client)
        if not routes:
            return [], "no backend serves it now, or the API key may not use it"
        routes = [each for each in routes if client_run_tools.with_functions(each.request, each)[0] is each.request]
        return routes, "" if routes else "the request has tools of another API"

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
        async with asyncio.TaskGroup() as tasks:
            for number, request in enumerate(requests):
                tasks.create_task(self._try_sample(request, number, attempt, collected))

    async def _try_sample(self, request: Request, number: int, attempt: BackendAttempt, collected: _Collected) -> None:
        attempts = attempt.context.attempts
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
            if (used := collected.add_usage(events)) is not None:
                self.costs.add(upstream, model, used, time.monotonic() - began_s)


def _sample_request(request: Request, number: int) -> Request:
    """Returns the request for a sample: the first is the usual re-ask, the others have a temperature and seeds."""
    sampling = request.sampling
    if not number:
        return request
    seed = (sampling.seed or 0) + number
    return replace(request, sampling=replace(sampling, temperature=sampling.temperature or TEMPERATURE, seed=seed))


def without_reasoning(request: Request) -> Request:
    """Returns the request without the reasoning of a model, for another one: its vendor must not get it."""
    messages: list[Message] = []
    for message in request.messages:
        parts = tuple(part for part in message.parts if type(part) is not Reasoning)
        if parts or not message.parts:
            messages.append(replace(message, parts=parts, verbatim_text=""))
    extra = {name: value for name, value in request.extra.items() if name != "thinking"}  # which needs past reasoning
    return replace(request, messages=tuple(messages), extra=extra)
