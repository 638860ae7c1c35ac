"""Routes a request to a backend and yields the events of its response.

    body ─dialect.read_request→ Request ─Gateway.generate→ events ─dialect.ResponseWriter.feed→ SSE or JSON

For any backend, the events begin with Start, end with Finish or Failure, name only tools that were offered, and report
token usage. `_stages` lists what each event passes on its way. If several backends serve the model, failover uses the
next one when a backend fails before its response has begun. Responses that a client can continue are kept in the
`ResponseStore`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from dragoman.closing import close_all
from dragoman.core.backend import Backend, EventStream, ExchangeContext, PassthroughResponse, ServedModel
from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.errors import DragomanError, RequestError, UnsupportedError
from dragoman.core.events import Notice
from dragoman.core.hooks import OnError
from dragoman.core.messages import PreviousResponseRef, Request, has_part
from dragoman.core.stage import EventStage
from dragoman.gateway import compaction
from dragoman.gateway.compaction import Seal
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.response_builder import ResponseBuilder
from dragoman.gateway.response_stream import BackendAttempt, stream_response
from dragoman.gateway.routing.image_descriptions import ImageDescriber
from dragoman.gateway.routing.replica_placer import PlacedExchange, ReplicaPlacer
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.routing.router import (
    ModelRoute,
    Router,
    backend_name,
    failover_notice,
    rerouted,
    with_last_resort,
)
from dragoman.gateway.second_opinion.opinions import opinions_of
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.gateway.token_counting import TokenCount, TokenCounter
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.gateway.vendor_tools.listings import offers_tools
from dragoman.gateway.vendor_tools.loop import AsgiApp, VendorToolRunner
from dragoman.gateway.vendor_tools.tool_runs import OnToolRun
from dragoman.guard.policy import Buffering, GuardPolicy
from dragoman.off_loop import off_loop
from dragoman.prices.price_book import PriceBook
from dragoman.wire.history import repair_history

log = logging.getLogger("dragoman.gateway.gateway")

DEFAULT_POLICY: Final = GuardPolicy()
NO_VENDOR_TOOLS: Final = VendorToolRunner({})


class Gateway:
    """Generates responses with the backends that serve the requested models."""

    def __init__(
        self,
        backends: Sequence[Backend],
        model_aliases: Mapping[str, str | Sequence[str]] | None = None,
        response_store: ResponseStore | None = None,
        policy: GuardPolicy = DEFAULT_POLICY,
        seal: Seal | None = None,
        vendor_tools: VendorToolRunner = NO_VENDOR_TOOLS,
        prices: PriceBook | None = None,
        rules: Routes | None = None,
    ) -> None:
        """Args:
        backends: All backends, the preferred ones first.
        model_aliases: Other names of models. A name for several models is a fallback list: the next is used when one
            fails.
        response_store: Responses that clients can continue; None: in memory, with default limits.
        policy: Settings of the guard.
        seal: Signs compacted conversations; None: with a random key.
        vendor_tools: Runs tools that the APIs' vendors run, such as web search; by default it runs none.
        prices: Prices of the models; None: no price is known.
        rules: Rules that select models; None: the client's choice applies.
        """
        self.prices = prices
        self._backends = tuple(backends)
        self._router = Router(backends, model_aliases or {}, rules)
        self._describer = ImageDescriber() if rules is not None and rules.describe_images else None
        self.placer = ReplicaPlacer() if rules is not None and rules.balances_by_prefix else None
        """Places requests by their prompts; None: no rule does."""
        self.response_store = ResponseStore() if response_store is None else response_store
        self._policy = policy
        self._vendor_tools = vendor_tools
        self.seal = seal or Seal()
        """Signs compacted conversations."""
        self._opinions = opinions_of(policy, rules, self._router, prices)
        self._builder = ResponseBuilder(self.response_store, policy, self.seal, vendor_tools)
        self._token_counter = TokenCounter(self._router, self.response_store, self.seal, vendor_tools)
        self.progress: Callable[[str], None] | None = None
        """Called with a line to show while a model evaluates a prompt."""
        self.on_error: Sequence[OnError] = ()
        """Called with the error of each exchange that failed."""

    async def start(self) -> None:
        """Starts every backend and checks the aliases."""
        if self.prices is not None:
            self.prices.preload()
        for backend in self._backends:
            await backend.start()
        await self._vendor_tools.start()
        self._router.check_aliases(self._policy.second_opinion)
        if self.placer is not None:
            await self.placer.start()

    async def start_next_to(self, running: "Gateway") -> None:
        """As `start`, but parts that the running gateway uses too are started already.

        Args:
            running: The gateway that this one is to replace.

        Raises:
            DragomanError: A backend did not start, or an alias names an unknown model.
        """
        await asyncio.gather(*(backend.start() for backend in self._backends if backend not in running.backends))
        if not self._vendor_tools.shares_executors(running.vendor_tools):
            await self._vendor_tools.start()
        if self.prices is not None and self.prices is not running.prices:
            self.prices.preload()
        self._router.check_aliases(self._policy.second_opinion)
        if self.placer is not None:
            await self.placer.start()

    async def close(self, running: Collection["Gateway"] = ()) -> None:
        """Closes every backend, the vendor tools, and the response store; raises `ExceptionGroup` after all of them.

        Args:
            running: Gateways whose parts stay open.
        """
        used = {backend for each in running for backend in each.backends}
        closers = [backend.close for backend in self._backends if backend not in used]
        if not any(self._vendor_tools.shares_executors(each.vendor_tools) for each in running):
            closers.append(self._vendor_tools.close)
        try:
            await close_all(*closers)
        finally:
            if all(each.response_store is not self.response_store for each in running):
                self.response_store.close()

    @property
    def backends(self) -> Sequence[Backend]:
        """All backends, the preferred ones first."""
        return self._backends

    @property
    def vendor_tools(self) -> VendorToolRunner:
        """Runs tools that the APIs' vendors run."""
        return self._vendor_tools

    def successor(
        self,
        backends: Sequence[Backend],
        model_aliases: Mapping[str, str | Sequence[str]],
        policy: GuardPolicy,
        vendor_tools: VendorToolRunner,
        prices: PriceBook | None,
        rules: Routes | None,
    ) -> "Gateway":
        """Returns a gateway with the same stored responses and hooks that is to replace this one.

        Args:
            backends: See `Gateway`.
            model_aliases: See `Gateway`.
            policy: Settings of the guard.
            vendor_tools: Runs tools that the APIs' vendors run.
            prices: Prices of the models; None: no price is known.
            rules: Rules that select models; None: there are none.
        """
        return Gateway(backends, model_aliases, self.response_store, policy, self.seal, vendor_tools, prices, rules)

    def models(self, client: ClientFacts = ANONYMOUS) -> list[ServedModel]:
        """See `Router.models`."""
        return self._router.models(client)

    async def refresh_local_models(self) -> None:
        """Updates the lists of models that are files of this machine."""
        await asyncio.gather(*(backend.refresh_local_models() for backend in self._backends))

    def is_alias(self, model: str) -> bool:
        """Returns whether a model's name is an alias of the settings."""
        return self._router.is_alias(model)

    def health(self) -> list[Mapping[str, object]]:
        """Returns the facts about each backend for /health."""
        return [backend.health() for backend in self._backends]

    def routes(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """See `Router.routes`."""
        return self._router.routes(request, client)

    def answering(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[tuple[str, str]]:
        """Returns the names of the backends that may answer, each with its own name of the model.

        Raises:
            DragomanError: No backend serves the model.
        """
        routes = self._router.routes(request, client)
        if self._opinions is not None:
            routes = [*routes, *self._opinions.routes(request, client)]
        return [(backend_name(backend), routed.model) for backend, routed in routes]

    def most_samples(self, request: Request) -> int:
        """Returns how many samples there may be of a second response to this request."""
        return 1 if self._opinions is None else self._opinions.samples(request)

    async def routes_or_refresh(self, request: Request, client: ClientFacts = ANONYMOUS) -> list[ModelRoute]:
        """See `Router.routes_or_refresh`."""
        return await self._router.routes_or_refresh(request, client)

    async def count_tokens(
        self, request: Request, client: ClientFacts = ANONYMOUS, *, large: bool = False
    ) -> TokenCount:
        """See `TokenCounter.count`."""
        return await self._token_counter.count(request, client, large=large)

    @property
    def on_tool_run(self) -> OnToolRun | None:
        """Called after each run of a vendor tool."""
        return self._builder.on_tool_run

    @on_tool_run.setter
    def on_tool_run(self, called: OnToolRun | None) -> None:
        self._builder.on_tool_run = called

    @property
    def examples(self) -> ExampleMemory | None:
        """Learns examples of tool calls, and puts them into prompts; None: this is off."""
        return self._builder.examples

    @examples.setter
    def examples(self, memory: ExampleMemory | None) -> None:
        self._builder.examples = memory

    @property
    def policy(self) -> GuardPolicy:
        """Settings of the guard."""
        return self._policy

    @property
    def mcp_endpoint(self) -> AsgiApp | None:
        """The ASGI application that serves the tools of the configured MCP servers; None: there are no servers."""
        return self._vendor_tools.mcp_endpoint

    @property
    def search_above(self) -> int:
        """Number of tools above which the model has to find them; 0: never."""
        return self._vendor_tools.search_above

    def secret_values(self) -> list[str]:
        """Returns the values of backends and vendor tools that must not appear in logs or captures."""
        values = [secret for backend in self._backends for secret in backend.secret_values()]
        return [*values, *self._vendor_tools.secrets]

    def passthrough(self, request: Request, body: bytes, context: ExchangeContext) -> PassthroughResponse | None:
        """Returns the upstream response's bytes if neither it nor the body has to be changed; None: use `generate`.

        None is also returned if several backends serve the model, because failover needs the events.
        """
        one_call = request.tools and not request.tool_choice.parallel_tool_calls
        if request.store or request.previous_response or one_call or request.has_extension:
            return None
        if self._router.with_steps(request, context.client).steps is not None:
            return None
        routes = self._router.routes_now(request, context.client)
        if not routes or (len(routes) > 1 and request.choices == 1) or compaction.uses_compaction(request):
            return None
        backend, routed = routes[0]
        if self._describer is not None and self._router.vision_routes(request, context.client):
            return None
        vendor_tools = self._vendor_tools.for_client(context.client)
        if offers_tools(vendor_tools.executors, request.model, routed.model):
            return None
        response = backend.passthrough(routed, body, request.model, context)
        if response is None or has_part(routed.messages, PreviousResponseRef) or repair_history(routed.messages)[1]:
            return None
        if client_run_tools.with_functions(request, routes[0])[0] is not request:
            return None
        if vendor_tools.plan(request, routes[0]) is not None:
            return None
        if context.observer is not None:
            context.observer.on_backend_call(backend, routed)
        context.attempts.begin(backend_name(backend), routed.model)
        spans = context.attempts.spans
        return response if spans is None else spans.wrap_passthrough(backend, routed, response, context)

    def generate(
        self,
        request: Request,
        context: ExchangeContext,
        buffering: Buffering | None = None,
        client_stages: Sequence[EventStage] = (),
    ) -> EventStream:
        """Yields the events of one response, in batches. Closing the generator stops the model.

        Args:
            request: The request of the client.
            context: The id, clock and observers of this exchange.
            buffering: How tool calls are buffered; None: as in the settings.
            client_stages: Further stages, which the events pass last.

        Raises:
            DragomanError: Before Start; later the stream ends with Failure.
        """
        routes: list[ModelRoute] = []
        warnings: list[Notice] = []
        placed = None if self.placer is None else PlacedExchange(self.placer, context)

        async def next_attempt(error: DragomanError | None) -> BackendAttempt:
            nonlocal request, routes
            if error is None:
                routes = await self._router.routes_or_refresh(request, context.client)
                request = self._router.with_steps(request, context.client)
                if placed is not None and self._router.is_balanced_by_prefix(request, context.client):
                    routes = await placed.order(request, routes)
                if self._describer is not None and (vision := self._router.vision_routes(request, context.client)):
                    request, notices = await self._describer.describe(request, vision, context)
                    warnings.extend(notices)
                context.attempts.replicas = routes
            else:  # raised before Start, so no event was sent
                if placed is not None:
                    placed.fail(error)
                routes = with_last_resort(routes, error, context.attempts)
                warnings.append(failover_notice(routes, error))
                routes = routes[1:]
                if placed is not None:
                    placed.begin(routes[0])
            try:
                job = await self._builder.prepare(
                    request, context, buffering, routes[0]
                )  # who runs the vendors' tools depends on the backend
            except (RequestError, UnsupportedError):
                if error is None:
                    raise
                raise error from None
            opinion = None if self._opinions is None else self._opinions.begin(request, context.client, routes[0])
            stages = client_stages if opinion is None else (opinion.costs, *client_stages)
            arguments = (job, rerouted(routes[0], job.request), warnings, stages)
            attempt = await off_loop(context.is_large, self._builder.attempt, *arguments)
            if opinion is not None:
                opinion.runs_tools = job.vendor_tools is not None
                attempt = msgspec.structs.replace(attempt, answer_reask=opinion.answer)
            return attempt if len(routes) == 1 else msgspec.structs.replace(attempt, may_fail_over=True)

        events = stream_response(next_attempt)
        return events if placed is None else placed.track(events)
