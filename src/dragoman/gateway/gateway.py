"""Routes a request to a backend and yields the events of its response.

    body ─dialect.read_request→ Request ─Gateway.generate→ events ─dialect.ResponseWriter.feed→ SSE or JSON

For any backend, the events begin with Start, end with Finish or Failure, name only tools that were offered, and report
token usage. `_stages` lists what each event passes on its way. If several backends serve the model, failover uses the
next one when a backend fails before its response has begun. Responses that a client can continue are kept in the
`ResponseStore`.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.closing import close_all
from dragoman.core.backend import Backend, EventStream, ExchangeContext, PassthroughResponse, ServedModel
from dragoman.core.call_limit import FirstCallOnly, limit_to_one_call
from dragoman.core.complete_calls import CompleteCallFilter
from dragoman.core.errors import DragomanError, RequestError, UnsupportedError
from dragoman.core.events import Notice
from dragoman.core.messages import PreviousResponseRef, Request, has_part
from dragoman.core.stage import EventPipeline, EventStage
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway import compaction
from dragoman.gateway.client_events import ClientEventFilter
from dragoman.gateway.compaction import Seal
from dragoman.gateway.memory_response_store import MemoryResponseStore
from dragoman.gateway.response_recorder import ResponseRecorder
from dragoman.gateway.response_store import ResolvedRequest, ResponseStore
from dragoman.gateway.response_stream import BackendAttempt, Generate, stream_response
from dragoman.gateway.router import ModelRoute, Router, backend_name, failover_notice, rerouted
from dragoman.gateway.usage import UsageFiller
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.gateway.vendor_tools.listings import Listings, offers_tools
from dragoman.gateway.vendor_tools.loop import AsgiApp, VendorToolRunner
from dragoman.gateway.vendor_tools.plan import VendorToolPlan, declared_servers
from dragoman.gateway.vendor_tools.tool_runs import OnToolRun
from dragoman.guard.policy import ALL_REPAIRS, Buffering, GuardPolicy
from dragoman.off_loop import off_loop
from dragoman.wire.context_edits import EditedRequest, EditReport, apply_edits_for
from dragoman.wire.history import repair_history
from dragoman.wire.translation import require_single_choice

log = logging.getLogger("dragoman.gateway.gateway")

DEFAULT_POLICY: Final = GuardPolicy()
NO_VENDOR_TOOLS: Final = VendorToolRunner({})


class TokenCount(NamedTuple):
    """The size of a request."""

    tokens: int
    estimated: bool
    cleared: int | None = None
    """Tokens that context edits removed; None if the request asks for none, or if the upstream server makes them."""


class _ResponseJob(msgspec.Struct, frozen=True):
    """What the response of one backend needs."""

    client_request: Request
    """The request of the client."""
    request: Request
    """The complete request for a backend: with earlier messages, and its API's own tools as functions."""
    resolved: ResolvedRequest
    """What is stored of the request."""
    policy: GuardPolicy | None
    """The guard's settings; None: the response cannot contain calls, or the guard is off."""
    call_buffer_chars: int
    """Up to this size a call is buffered until it is complete, behind the guard."""
    context: ExchangeContext
    is_summary: bool = False
    """The response is a summary of the conversation, to be sealed."""
    vendor_tools: VendorToolPlan | None = None
    """What the gateway does about tools that the API's vendor would run."""
    warnings: tuple[Notice, ...] = ()
    """About tools that are left out."""


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
    ) -> None:
        """Args:
        backends: All backends, the preferred ones first.
        model_aliases: Other names of models. A name for several models is a fallback list: the next is used when one
            fails.
        response_store: Responses that clients can continue; None: in memory, with default limits.
        policy: Settings of the guard.
        seal: Signs compacted conversations; None: with a random key.
        vendor_tools: Runs tools that the APIs' vendors run, such as web search; by default it runs none.
        """
        self._backends = tuple(backends)
        self._router = Router(backends, model_aliases or {})
        self.response_store = MemoryResponseStore() if response_store is None else response_store
        self._policy = policy
        self._disabled_repairs = frozenset(ALL_REPAIRS) - policy.enabled_repairs
        self._seal = seal or Seal()
        self._vendor_tools = vendor_tools
        self.progress: Callable[[str], None] | None = None
        """Called with a line to show while a model evaluates a prompt."""
        self.on_tool_run: OnToolRun | None = None
        """Called after each run of a vendor tool."""

    async def start(self) -> None:
        """Starts every backend and checks the aliases."""
        for backend in self._backends:
            await backend.start()
        await self._vendor_tools.start()
        self._router.check_aliases()

    async def close(self) -> None:
        """Closes every backend, the vendor tools, and the response store. Raises `ExceptionGroup` after all of them."""
        try:
            await close_all(*(backend.close for backend in self._backends), self._vendor_tools.close)
        finally:
            self.response_store.close()

    def models(self) -> list[ServedModel]:
        """Returns all models that can be requested, each name once: the models' own names, then aliases."""
        return self._router.models()

    async def refresh_local_models(self) -> None:
        """Updates the lists of models that are files of this machine."""
        await asyncio.gather(*(backend.refresh_local_models() for backend in self._backends))

    def health(self) -> list[Mapping[str, object]]:
        """Returns the facts about each backend for /health."""
        return [backend.health() for backend in self._backends]

    def routes(self, request: Request) -> list[ModelRoute]:
        """See `Router.routes`."""
        return self._router.routes(request)

    async def routes_or_refresh(self, request: Request) -> list[ModelRoute]:
        """See `Router.routes_or_refresh`."""
        return await self._router.routes_or_refresh(request)

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
        if request.store or request.previous_response or one_call:
            return None
        routes = self._router.routes_now(request)
        if not routes or (len(routes) > 1 and request.choices == 1) or compaction.uses_compaction(request):
            return None
        backend, routed = routes[0]
        if offers_tools(self._vendor_tools.executors, request.model, routed.model):
            return None
        response = backend.passthrough(routed, body, request.model, context)
        if response is None or has_part(routed.messages, PreviousResponseRef) or repair_history(routed.messages)[1]:
            return None
        if client_run_tools.with_functions(request, routes[0])[0] is not request:
            return None
        if self._vendor_tools.plan(request, routes[0]) is not None:
            return None
        if context.observer is not None:
            context.observer.on_backend_call(backend, routed)
        context.attempts.begin(backend_name(backend), routed.model)
        return response

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

        async def prepare(route: ModelRoute) -> _ResponseJob:
            servers = declared_servers(request, route, self._vendor_tools.executors)
            listings = await self._vendor_tools.list_tools(servers) if servers else ()
            work = partial(self._prepare, request, context, buffering, listings, route)
            in_thread = context.is_large or self.response_store.blocks(request)
            return await asyncio.to_thread(work) if in_thread else work()

        async def next_attempt(error: DragomanError | None) -> BackendAttempt:
            nonlocal routes
            if error is None:
                routes = await self._router.routes_or_refresh(request)
            else:  # raised before Start, so no event was sent
                warnings.append(failover_notice(routes, error))
                routes = routes[1:]
            try:
                job = await prepare(routes[0])  # who runs the vendors' tools depends on the backend
            except (RequestError, UnsupportedError):
                if error is None:
                    raise
                raise error from None
            arguments = (job, rerouted(routes[0], job.request), warnings, client_stages)
            return await asyncio.to_thread(self._attempt, *arguments) if context.is_large else self._attempt(*arguments)

        return stream_response(next_attempt)

    def _attempt(
        self, job: "_ResponseJob", route: ModelRoute, warnings: Sequence[Notice], client_stages: Sequence[EventStage]
    ) -> BackendAttempt:
        """Returns the attempt to get the response from the backend of this route.

        Args:
            job: The response.
            route: The backend, and the request for it.
            warnings: Warnings about earlier attempts.
            client_stages: Further stages, which the events pass last.
        """
        backend, routed = route
        if job.vendor_tools is None or job.vendor_tools.refused is None:
            job.context.attempts.begin(backend_name(backend), routed.model)
        messages, repairs = repair_history(routed.messages)
        ordered = msgspec.structs.replace(routed, messages=messages) if repairs else routed
        edit = apply_edits_for(backend, ordered, tokenizers.find(routed.model))
        pipeline = EventPipeline([*self._stages(job, edit, (*repairs, *warnings)), *client_stages])
        in_thread = job.context.is_large or (job.client_request.store and self.response_store.does_io)
        generate = self._generator(backend, job)
        return BackendAttempt(generate, edit.request, job.context, pipeline, self._policy.reask_timeout_s, in_thread)

    def _prepare(
        self,
        request: Request,
        context: ExchangeContext,
        buffering: Buffering | None,
        listings: Listings,
        route: ModelRoute,
    ) -> _ResponseJob:
        """Returns what the response of a backend needs.

        Args:
            request: The request of the client.
            context: The exchange.
            buffering: How tool calls are buffered; None: as in the settings.
            listings: The tools of the MCP servers that the request declares.
            route: The backend that is asked.

        Raises:
            DragomanError: The request names something that is not stored, or an item that cannot be opened.
        """
        require_single_choice(request)
        resolved = self.response_store.resolve(limit_to_one_call(request))
        complete, unseen = client_run_tools.with_functions(resolved.request, route)
        if self._disabled_repairs:
            context = msgspec.structs.replace(context, disabled_repairs=self._disabled_repairs)
        if compaction.uses_compaction(complete):
            complete, needs_compaction = compaction.prepare_request(complete, route, self._seal)
            if needs_compaction:
                unstored = resolved._replace(previous_id="", input_messages=())
                summary = self._summary_request(complete, route)
                return _ResponseJob(request, summary, unstored, None, 0, context, is_summary=True)
        plan = self._vendor_tools.plan(complete, route, listings)
        complete = complete if plan is None else plan.request
        policy = None if plan is not None and plan.refused else self._policy_for(complete, buffering)
        guard_buffers = policy is not None and request.stream
        buffer_chars = 0 if guard_buffers else self._policy.buffer_limit(buffering, stream=request.stream)
        return _ResponseJob(
            request, complete, resolved, policy, buffer_chars, context, vendor_tools=plan, warnings=unseen
        )

    def _summary_request(self, request: Request, route: ModelRoute | None) -> Request:
        """Returns the request for a summary, with the same tools in its prompt as in the conversation's own requests.

        Raises:
            RequestError: There is nothing to summarize.
        """
        plan = None if route is None else self._vendor_tools.plan(request, route)
        return compaction.summary_request(request if plan is None or plan.refused else plan.request)

    def _generator(self, backend: Backend, job: _ResponseJob) -> Generate:
        """Returns what asks this backend, again and again where the model calls tools that the gateway runs."""
        if job.vendor_tools is not None:
            return self._vendor_tools.response(backend, job.vendor_tools, self.on_tool_run).generate
        return lambda request, context: context.generate(backend, request)

    def _stages(self, job: _ResponseJob, edit: EditedRequest, warnings: Sequence[Notice]) -> list[EventStage]:
        """Returns the stages that the events of one backend's response pass, in order.

        Args:
            job: The response.
            edit: The request as the backend gets it.
            warnings: Warnings about the request, to be sent after Start.
        """
        request, vendor_tools = job.request, job.vendor_tools
        stages: list[EventStage] = []
        if job.policy is not None:
            from dragoman.guard.guard import ToolCallGuard  # needs an extra that not all users of the gateway have

            expected = edit.request if vendor_tools is None else vendor_tools.hide_tools(edit.request)
            stages.append(ToolCallGuard(expected, job.policy, vendor_tools.rounds if vendor_tools else ()))
            if edit.request.response_schema:
                from dragoman.gateway.reply_schema_check import ReplySchemaCheck

                stages.append(ReplySchemaCheck(expected, job.policy, vendor_tools.rounds if vendor_tools else ()))
        if edit.applied:
            stages.append(EditReport(edit.applied))
        early = request.stream and bool(request.dialect) and dialects.get(request.dialect).usage_in_first_event
        if vendor_tools is None or vendor_tools.refused is None:  # else no model is asked
            stages.append(UsageFiller(edit.request, tokenizers.find(edit.request.model), early=early))
        planned = () if vendor_tools is None else vendor_tools.warnings
        stages.append(ClientEventFilter(request, (*warnings, *job.warnings, *planned, *edit.warnings)))
        if job.is_summary:
            stages.append(compaction.SealedSummary(self._seal, job.context))
        else:
            stages.append(CompleteCallFilter(job.call_buffer_chars))
        if job.client_request.tools and not request.tool_choice.parallel_tool_calls and not job.is_summary:
            stages.append(FirstCallOnly())
        if job.client_request.store or job.resolved.warnings:
            stages.append(ResponseRecorder(self.response_store, job.client_request, job.resolved))
        return stages

    def _policy_for(self, request: Request, buffering: Buffering | None) -> GuardPolicy | None:
        """The guard's settings for this response; None: it cannot contain calls."""
        if not (self._policy.enabled and any(tool.kind == "function" for tool in request.tools)):
            return None
        policy = msgspec.structs.replace(self._policy, buffering=buffering) if buffering else self._policy
        if request.stream or policy.buffering != "short":
            return policy
        return msgspec.structs.replace(policy, buffer_limit_chars=sys.maxsize)  # this client does not get a stream

    async def count_tokens(self, request: Request, *, large: bool = False) -> TokenCount:
        """Returns the tokens of the prompt; an estimate if the backend cannot count them, or if the request names no
        model.

        Raises:
            DragomanError: The request could not be answered either.
        """
        route = (await self._router.routes_or_refresh(request))[0] if request.model else None
        request = await off_loop(large or self.response_store.blocks(request), self._request_to_count, request, route)
        if route is None:
            return TokenCount(await off_loop(large, GENERIC.estimate_request, request), estimated=True)
        backend, routed = rerouted(route, request)
        messages, warnings = await off_loop(large, repair_history, routed.messages)
        if warnings:
            routed = msgspec.structs.replace(routed, messages=messages)
        vocabulary = tokenizers.find(routed.model)
        edit = await off_loop(large, apply_edits_for, backend, routed, vocabulary)
        cleared = edit.cleared_tokens if edit.applied else None
        if (tokens := await backend.count_tokens(edit.request)) is not None:
            return TokenCount(tokens, estimated=False, cleared=cleared)
        estimate = await off_loop(large, vocabulary.estimate_request, edit.request)
        return TokenCount(estimate, estimated=True, cleared=cleared)

    def _request_to_count(self, request: Request, route: ModelRoute | None) -> Request:
        request = self.response_store.resolve(request).request
        if route is not None:
            request, _ = client_run_tools.with_functions(request, route)
        if compaction.uses_compaction(request):
            request, needs_compaction = compaction.prepare_request(request, route, self._seal)
            request = self._summary_request(request, route) if needs_compaction else request
        plan = None if route is None else self._vendor_tools.plan(request, route)
        return request if plan is None else plan.request
