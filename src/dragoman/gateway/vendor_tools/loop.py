"""Continues with the model while it calls tools of the vendor, which the gateway runs.

    model → text, call of web_search → the client gets both → run → the client gets the result
    model, with call and result in its history → text → the client

A round is one response of the model. Text and calls of the client's own tools are passed on as they arrive; calls of
vendor tools wait for the end of the round. The client sees one response: one Start, one Finish, the usage of all
rounds. If the client has calls to run, the response ends after the round. Rounds, time, uses and sizes are limited.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from dragoman.closing import close_all
from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.client import ClientFacts
from dragoman.core.events import (
    AnyEvent,
    Detail,
    Finish,
    Notice,
    Start,
    UsageUpdate,
)
from dragoman.core.messages import Message, Request, Usage, add_usage
from dragoman.core.response_details import ANNOTATIONS, CITATIONS
from dragoman.core.tool_name_match import STEPS, ToolNames
from dragoman.gateway.routing.router import ModelRoute
from dragoman.gateway.vendor_tools.deferral import with_found
from dragoman.gateway.vendor_tools.listings import Listings
from dragoman.gateway.vendor_tools.model_round import ModelRound
from dragoman.gateway.vendor_tools.permitted import permitted_executors
from dragoman.gateway.vendor_tools.plan import VendorToolPlan, plan_vendor_tools, without_choice
from dragoman.gateway.vendor_tools.spent_limits import SpentLimits
from dragoman.gateway.vendor_tools.steps import needs_approval, refusal, tool_result, with_results
from dragoman.gateway.vendor_tools.tool_runs import CallRunner, OnToolRun, ToolRunSettings
from dragoman.off_loop import off_loop
from dragoman.prices.price_book import PriceBook
from dragoman.steps.apply import apply_next
from dragoman.steps.call_filter import call_filter
from dragoman.vendor_tools.citations import CitedPage, page_source, result_citations, url_citations
from dragoman.vendor_tools.executor import ToolServers
from dragoman.vendor_tools.tool import TOOL_SEARCH, FetchedPage, ToolRunResult, VendorTool, VendorToolCall

_MAX_ON_LOOP_CHARS: Final = 50_000
"""Characters of sources up to which finding quotes takes less than about 10 ms."""
_BY_ROUND: Final = ("tools", "prompt_tools", "tool_choice", "accepts_parallel_calls", "steps")
"""Fields of a request that differ between rounds, next to its messages."""
AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class VendorToolRunner(ToolRunSettings):
    """Runs vendor tools for all responses of a gateway."""

    secrets: tuple[str, ...] = ()
    """Values of the executors that must not appear in logs or captures."""
    on_close: Callable[[], Awaitable[None]] | None = None
    """Called after the executors are closed, such as to end servers that they share."""
    mcp_endpoint: AsgiApp | None = None
    """Serves the tools of the MCP servers of the settings to other agents."""
    prices: PriceBook | None = None
    """Prices of models, for the limit of the cost; None: only backends know them."""

    def for_client(self, client: ClientFacts) -> "VendorToolRunner":
        """Returns what runs the tools that the client's API key may use."""
        permissions = client.permissions
        if permissions is None or not permissions.tools:
            return self
        return dataclasses.replace(self, executors=permitted_executors(self.executors, permissions))

    def plan(self, request: Request, route: ModelRoute, listings: Listings = ()) -> VendorToolPlan | None:
        """See `plan_vendor_tools`."""
        return plan_vendor_tools(request, route, self.executors_for, self.search_above, listings)

    def shares_executors(self, other: "VendorToolRunner") -> bool:
        """Returns whether both have the same executors, which are started and closed once."""
        own, others = tuple(self.executors.values()), tuple(other.executors.values())
        return self.on_close is other.on_close and list(map(id, own)) == list(map(id, others))

    async def start(self) -> None:
        """Starts all executors."""
        for executor in self.executors.values():
            await executor.start()

    async def close(self) -> None:
        """Closes all executors.

        Raises:
            ExceptionGroup: Some could not be closed; all others are.
        """
        try:
            await close_all(*(executor.close for executor in self.executors.values()))
        finally:
            if self.on_close is not None:
                await self.on_close()

    async def list_tools(self, servers: Sequence[VendorTool]) -> Listings:
        """Returns the tools of declared MCP servers, which are asked at the same time.

        Raises:
            RequestError: Requests may not name one of the servers.
        """
        executor = self.executors["mcp"]
        assert isinstance(executor, ToolServers)
        listed = await asyncio.gather(*map(executor.list_tools, servers))
        return tuple(zip(servers, listed, strict=True))

    def response(self, backend: Backend, plan: VendorToolPlan, on_run: OnToolRun | None) -> "VendorToolResponse":
        """Returns one response of a backend, whose calls are run.

        Args:
            backend: The backend that is asked.
            plan: What the gateway does about the tools.
            on_run: Is called after each run of a tool.
        """
        return VendorToolResponse(self, backend, plan, on_run)


class VendorToolResponse:
    """One response; its limits and the results of approved calls last over a re-ask."""

    def __init__(
        self, runner: VendorToolRunner, backend: Backend, plan: VendorToolPlan, on_run: OnToolRun | None
    ) -> None:
        self._runner, self._backend, self._plan = runner, backend, plan
        self._spent = SpentLimits()
        self._calls = CallRunner(runner, plan, on_run)
        self._approved: dict[str, ToolRunResult] = {}
        """Results of approved calls, by the id of the approval."""
        self._last: Request | None = None
        """The request of the first response's last round; None: the model was not asked yet."""

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the whole response, or of a second one if the model is re-asked.

        Args:
            request: The request for the backend.
            context: The exchange.

        Raises:
            DragomanError: Before Start; later from a further round.
        """
        plan = self._plan
        if plan.refused is not None:
            yield refusal(plan, plan.refused, request, context)
            return
        if missing := tuple(name for name in plan.tools if name not in plan.run):
            context = replace(context, unavailable_tools=missing)
        self._calls.context = context
        response = _Response(self._runner, plan, context, self._calls, self._spent)
        if plan.approved and not self._approved:
            yield response.with_listings([Start(context.id, request.model, context.created)])
            async with aclosing(self._run_approved(response, context)) as events_of_calls:
                async for events in events_of_calls:
                    yield events
            response.has_started = True
        is_reask = self._last is not None
        request = self._first_round(request)
        while True:
            turn, steps = response.begin_round(), call_filter(self._in_turn(request), context.disabled_repairs)
            async with aclosing(context.generate(self._backend, request)) as batches:
                async for batch in batches:
                    if out := turn.feed(batch if steps is None else steps.feed(batch)):
                        yield response.with_listings(out)
            if turn.finish is None:
                return
            self._spent.add_round(turn, request, response.priced)
            if not turn.calls:
                yield [*await response.citations(turn), turn.finish]
                return
            results: list[ToolRunResult] = []
            async with aclosing(response.run_all(turn.calls_to_run(needs_approval), results)) as events_of_calls:
                async for events in events_of_calls:
                    yield events
            if (end := response.end_of_round(turn)) is not None:
                yield end
                return
            request = self._restricted(_next_request(plan, request, turn, results), is_reask=is_reask)

    def _first_round(self, request: Request) -> Request:
        """Returns the request with approved results; that of a re-ask with the tools and choice of the last round."""
        request = with_results(request, self._approved)
        if self._last is not None:
            changed = {name: getattr(self._last, name) for name in _BY_ROUND}
            return self._plan.hide_tools_of_reask(replace(request, **changed))
        self._last = request
        return self._restricted(request, is_reask=False) if self._approved and request.prompt_tools else request

    def _restricted(self, request: Request, *, is_reask: bool) -> Request:
        """Returns the request of a further round, restricted to what its steps allow after the calls so far."""
        request = replace(apply_next(self._in_turn(request)).request, messages=request.messages)
        if not is_reask:
            self._last = request
            self._plan.rounds.begin(self._plan.choice_of_client(request))
        return request

    def _in_turn(self, request: Request) -> Request:
        """Returns the request with the unedited conversation, without messages of a re-ask: they begin no turn."""
        earlier = with_results(self._plan.request, self._approved) if self._approved else self._plan.request
        return replace(request, messages=(*earlier.messages, *self._plan.rounds))

    async def _run_approved(self, response: "_Response", context: ExchangeContext) -> EventStream:
        """Runs the calls that the user approved, each once, and yields their events for the client."""
        calls = [VendorToolCall(context.new_id(), tool, each.arguments, each.id) for each, tool in self._plan.approved]
        results: list[ToolRunResult] = []
        async with aclosing(response.run_all(calls, results)) as events_of_calls:
            async for events in events_of_calls:
                yield events
        self._approved = {call.approval_id: result for call, result in zip(calls, results, strict=True)}


class _Response:
    """The state of one stream of events over all rounds."""

    def __init__(
        self,
        settings: VendorToolRunner,
        plan: VendorToolPlan,
        context: ExchangeContext,
        calls: CallRunner,
        spent: SpentLimits,
    ) -> None:
        self.plan, self.context, self._settings = plan, context, settings
        self.calls, self._spent = calls, spent
        self.rounds = 0
        self.has_started = False
        """The client has got Start."""
        self.client_calls = 0
        self.earlier_usage = Usage()
        """Of the rounds before the present one."""
        self.usage: Usage | None = None
        """Of all rounds so far, if the backend reports it."""
        self._client_tools = {tool.name for tool in plan.request.tools if tool.kind == "function"} - plan.tools.keys()
        self.has_text = False
        self._listings = plan.listings
        self.waits_for_approval = False
        """The client was asked whether a call may be run."""
        self.is_separated = False
        """Whether the client sees something between the last round and the present one."""
        self._chars = 0
        """Characters of text in the rounds before the present one."""

    def tool_of(self, name: str) -> VendorTool | None:
        """Returns the tool that a call names, almost correctly where the client's own tools are not meant."""
        tools = self.plan.tools
        if name in tools or name in self._client_tools:
            return tools.get(name)
        steps = [step for step in STEPS if step not in self.context.disabled_repairs]
        match = ToolNames([*tools, *self._client_tools], steps).resolve(name)
        return tools.get(match.name) if match else None

    def with_listings(self, out: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events, with the tools of MCP servers after the first."""
        if not self._listings or not isinstance(out[0], Start):
            return out
        listings, self._listings = self._listings, ()
        events: list[AnyEvent] = []
        for tool, listing in listings:
            call = VendorToolCall(self.context.new_id(), tool, "{}")
            events += [*self.plan.codec.begin(call), *self.plan.codec.finish(call, listing)]
        return [out[0], *events, *out[1:]]

    async def run_all(self, calls: Sequence[VendorToolCall], results: list[ToolRunResult]) -> EventStream:
        """Runs the calls, yields their events for the client in the order of the calls, and adds their results."""
        async with self.calls.running([call for call in calls if not needs_approval(call)]) as runs:
            remaining = iter(runs)
            for call in calls:
                if needs_approval(call):
                    self.waits_for_approval = True
                    yield self.plan.codec.ask_approval(call)
                    continue
                if not call.tool.is_internal and (events := self.plan.codec.begin(call)):
                    yield events
                results.append(await next(remaining))
                if not call.tool.is_internal and (events := self.plan.codec.finish(call, results[-1])):
                    yield events

    async def citations(self, turn: ModelRound) -> list[AnyEvent]:
        """Returns the sources that the last text of the response mentions or quotes."""
        codec, calls = self.plan.codec, self.calls
        if not (calls.hits or calls.pages) or not (codec.has_annotations or codec.has_citations):
            return []
        text = turn.last_text(across_blocks=not codec.shows_calls)
        sources = [*calls.hits, *(page_source(page) for _, page in calls.pages)]
        is_large = sum(len(each.text) for each in sources) > _MAX_ON_LOOP_CHARS
        if codec.has_citations:
            cited = await off_loop(is_large, result_citations, text, calls.hits, _cited_pages(calls.pages))
            return [Detail(CITATIONS, cited, self.plan.request.dialect)] if cited else []
        found = await off_loop(is_large, url_citations, text, 0 if codec.shows_calls else self._chars, sources)
        return [Detail(ANNOTATIONS, found)] if found else []

    def priced(self, usage: Usage) -> Usage:
        """Returns the usage of a round with its cost, if the price of the model is known."""
        prices, attempts = self._settings.prices, self.context.attempts
        if prices is None or usage.cost_usd is not None:
            return usage
        return replace(usage, cost_usd=prices.cost_usd(attempts.upstream, attempts.model, usage, 0.0))

    def begin_round(self) -> ModelRound:
        self.rounds += 1
        self.earlier_usage = self.usage or Usage()
        return ModelRound(self, is_first=self.rounds == 1 and not self.has_started)

    def end_of_round(self, turn: ModelRound) -> Sequence[AnyEvent] | None:
        """Returns the last events of the response; None: another round follows."""
        assert turn.finish is not None
        usage = self._counted_usage()
        if turn.has_client_calls or self.waits_for_approval or turn.finish.reason not in ("stop", "tool_calls"):
            return [*usage, turn.finish]
        limit = self._spent.reached(self._settings, self.calls.left_s)
        is_internal = all(call.tool.is_internal for call in turn.calls)
        if not limit:
            self.is_separated = self.plan.codec.shows_calls and not is_internal
            self._chars += len(turn.last_text(across_blocks=True))
            return None
        message = f"the model called vendor tools for {limit}, the limit of the settings [tools]"
        return [
            *usage,
            Notice("vendor_tool_limit", message),
            Finish("pause" if self.plan.codec.can_pause and not is_internal else "length"),
        ]

    def _counted_usage(self) -> list[AnyEvent]:
        return [] if self.usage is None else [UsageUpdate(self.plan.codec.count_uses(self.usage, self.calls.uses))]

    def total_usage(self, usage: Usage) -> Usage:
        """Returns the usage of all rounds, given that of the present one."""
        first = self.rounds == 1
        self.usage = (
            usage if first else replace(add_usage(self.earlier_usage, usage), extra=usage.extra, dialect=usage.dialect)
        )
        return self.plan.codec.count_uses(self.usage, self.calls.uses)


def _cited_pages(pages: Sequence[tuple[VendorTool, FetchedPage]]) -> list[CitedPage]:
    """Returns the pages that may be cited; each page is a document of the response."""
    return [CitedPage(page, tool.earlier_documents + n) for n, (tool, page) in enumerate(pages) if tool.citations]


def _next_request(
    plan: VendorToolPlan, request: Request, turn: ModelRound, results: Sequence[ToolRunResult]
) -> Request:
    """Returns the request for the next round, with the calls and their results, which are also noted in the plan."""
    message = turn.message_for_model(request.messages)
    answered = tuple(tool_result(id, result) for id, result in zip(turn.call_ids, results, strict=True))
    turns = (message, Message("tool", answered))
    plan.rounds.extend(turns)
    choice = request.tool_choice
    if choice.name in plan.tools or not all(call.tool.kind == TOOL_SEARCH for call in turn.calls):
        choice = without_choice(choice, request.tools)  # a search for tools is not yet a call that is required
    request = replace(request, messages=(*request.messages, *turns), tool_choice=choice)
    return with_found(request, [tool.name for result in results for tool in result.tools])
