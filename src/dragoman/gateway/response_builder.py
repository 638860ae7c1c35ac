"""Builds what a backend's response needs: the complete request, and the stages that its events pass, in order."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial

import msgspec

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.core.backend import Backend, ExchangeContext
from dragoman.core.call_limit import FirstCallOnly, limit_to_one_call
from dragoman.core.complete_calls import CompleteCallFilter
from dragoman.core.events import Notice
from dragoman.core.messages import Request
from dragoman.core.stage import EventPipeline, EventStage, LaterRounds
from dragoman.gateway import compaction
from dragoman.gateway.client_events import ClientEventFilter
from dragoman.gateway.compaction import Seal
from dragoman.gateway.examples.memory import ExampleMemory
from dragoman.gateway.response_stream import BackendAttempt, Generate
from dragoman.gateway.routing.router import ModelRoute, backend_name
from dragoman.gateway.storage.response_recorder import ResponseRecorder
from dragoman.gateway.storage.response_store import ResolvedRequest, ResponseStore
from dragoman.gateway.usage import UsageFiller
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.gateway.vendor_tools.listings import Listings
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.gateway.vendor_tools.plan import VendorToolPlan, declared_servers
from dragoman.gateway.vendor_tools.tool_runs import OnToolRun
from dragoman.guard.policy import ALL_REPAIRS, Buffering, GuardPolicy
from dragoman.steps.apply import apply_steps
from dragoman.steps.call_filter import call_filter
from dragoman.wire.context_edits import EditedRequest, EditReport, apply_edits_for
from dragoman.wire.history import repair_history
from dragoman.wire.translation import require_single_choice


class ResponseJob(msgspec.Struct, frozen=True):
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


class ResponseBuilder:
    """Prepares the responses of all backends, by the settings of the gateway."""

    def __init__(
        self, response_store: ResponseStore, policy: GuardPolicy, seal: Seal, vendor_tools: VendorToolRunner
    ) -> None:
        """
        Args:
            response_store: Responses that clients can continue.
            policy: Settings of the guard.
            seal: Signs compacted conversations.
            vendor_tools: Runs tools that the APIs' vendors run.
        """
        self._store = response_store
        self._policy = policy
        self._disabled_repairs = frozenset(ALL_REPAIRS) - policy.enabled_repairs
        self.seal = seal
        """Signs compacted conversations."""
        self._vendor_tools = vendor_tools
        self.on_tool_run: OnToolRun | None = None
        """Called after each run of a vendor tool."""
        self.examples: ExampleMemory | None = None
        """Learns examples, and puts them into prompts; None: this is off."""

    async def prepare(
        self, request: Request, context: ExchangeContext, buffering: Buffering | None, route: ModelRoute
    ) -> ResponseJob:
        """Returns what the response of a backend needs.

        Args:
            request: The request of the client.
            context: The exchange.
            buffering: How tool calls are buffered; None: as in the settings.
            route: The backend that is asked.

        Raises:
            DragomanError: The request names something that is not stored, or an item that cannot be opened.
        """
        vendor_tools = self._vendor_tools.for_client(context.client)
        servers = declared_servers(request, route, vendor_tools.executors)
        listings = await vendor_tools.list_tools(servers) if servers else ()
        work = partial(self._prepare, request, context, buffering, listings, route, vendor_tools)
        in_thread = context.is_large or self._store.blocks(request)
        job = await asyncio.to_thread(work) if in_thread else work()
        if self.examples is None or job.is_summary:
            return job
        upstream = backend_name(route[0])
        request = await self.examples.apply(job.request, context.client, upstream, is_large=context.is_large)
        return job if request is job.request else msgspec.structs.replace(job, request=request)

    def _prepare(
        self,
        request: Request,
        context: ExchangeContext,
        buffering: Buffering | None,
        listings: Listings,
        route: ModelRoute,
        vendor_tools: VendorToolRunner,
    ) -> ResponseJob:
        require_single_choice(request)
        resolved = self._store.resolve(limit_to_one_call(request), context.client.key)
        complete, unseen = client_run_tools.with_functions(resolved.request, route)
        if self._disabled_repairs:
            context = msgspec.structs.replace(context, disabled_repairs=self._disabled_repairs)
        if compaction.uses_compaction(complete):
            complete, needs_compaction = compaction.prepare_request(complete, route, self.seal)
            if needs_compaction:
                unstored = resolved._replace(ancestors=(), input_messages=())
                summary = summary_request(complete, route, vendor_tools)
                return ResponseJob(request, summary, unstored, None, 0, context, is_summary=True)
        plan = vendor_tools.plan(complete, route, listings)
        complete = complete if plan is None else plan.request
        if complete.steps is not None:
            complete, notices, _ = apply_steps(complete)
            unseen = (*unseen, *notices)
        policy = None if plan is not None and plan.refused else self._policy_for(complete, buffering)
        guard_buffers = policy is not None and request.stream
        buffer_chars = 0 if guard_buffers else self._policy.buffer_limit(buffering, stream=request.stream)
        return ResponseJob(
            request, complete, resolved, policy, buffer_chars, context, vendor_tools=plan, warnings=unseen
        )

    def attempt(
        self, job: "ResponseJob", route: ModelRoute, warnings: Sequence[Notice], client_stages: Sequence[EventStage]
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
        in_thread = job.context.is_large or (job.client_request.store and self._store.does_io)
        generate = self._generator(backend, job)
        return BackendAttempt(
            generate=generate,
            request=edit.request,
            context=job.context,
            pipeline=pipeline,
            reask_timeout_s=self._policy.reask_timeout_s,
            in_thread=in_thread,
        )

    def _generator(self, backend: Backend, job: ResponseJob) -> Generate:
        """Returns what asks this backend, again and again where the model calls tools that the gateway runs."""
        if job.vendor_tools is not None:
            vendor_tools = self._vendor_tools.for_client(job.context.client)
            return vendor_tools.response(backend, job.vendor_tools, self.on_tool_run).generate
        return lambda request, context: context.generate(backend, request)

    def _stages(self, job: ResponseJob, edit: EditedRequest, warnings: Sequence[Notice]) -> list[EventStage]:
        """Returns the stages that the events of one backend's response pass, in order.

        Args:
            job: The response.
            edit: The request as the backend gets it.
            warnings: Warnings about the request, to be sent after Start.
        """
        request, vendor_tools = job.request, job.vendor_tools
        stages: list[EventStage] = []
        if job.policy is not None:
            expected = edit.request if vendor_tools is None else vendor_tools.hide_tools(edit.request)
            stages.append(self._guard(expected, job.policy, vendor_tools.rounds if vendor_tools else None))
            if edit.request.response_schema:
                from dragoman.gateway.reply_schema_check import ReplySchemaCheck

                stages.append(ReplySchemaCheck(expected, job.policy, vendor_tools.rounds if vendor_tools else ()))
        if vendor_tools is None and request.prompt_tools:  # else each round has its own
            stages += filter(None, [call_filter(request, job.context.disabled_repairs)])
        if edit.applied:
            stages.append(EditReport(edit.applied))
        early = request.stream and bool(request.dialect) and dialects.get(request.dialect).usage_in_first_event
        if vendor_tools is None or vendor_tools.refused is None:  # else no model is asked
            stages.append(UsageFiller(edit.request, tokenizers.find(edit.request.model), early=early))
        planned = () if vendor_tools is None else vendor_tools.warnings
        stages.append(ClientEventFilter(request, (*warnings, *job.warnings, *planned, *edit.warnings)))
        if job.is_summary:
            stages.append(compaction.SealedSummary(self.seal, job.context, request))
        else:
            stages.append(CompleteCallFilter(job.call_buffer_chars))
        if job.client_request.tools and not request.tool_choice.parallel_tool_calls and not job.is_summary:
            stages.append(FirstCallOnly())
        if job.client_request.store or job.resolved.warnings:
            stages.append(ResponseRecorder(self._store, job.client_request, job.resolved))
        return stages

    def _guard(self, request: Request, policy: GuardPolicy, later: LaterRounds | None) -> EventStage:
        """Returns the guard of a response: to this request, and after these messages of the gateway's tools."""
        from dragoman.guard.guard import ToolCallGuard  # needs an extra that not all users of the gateway have

        return ToolCallGuard(request, policy, later)

    def _policy_for(self, request: Request, buffering: Buffering | None) -> GuardPolicy | None:
        """The guard's settings for this response; None: it cannot contain calls."""
        if not (self._policy.enabled and any(tool.kind == "function" for tool in request.tools)):
            return None
        policy = msgspec.structs.replace(self._policy, buffering=buffering) if buffering else self._policy
        if request.stream or policy.buffering != "short":
            return policy
        return msgspec.structs.replace(policy, buffer_limit_chars=sys.maxsize)  # this client does not get a stream


def summary_request(request: Request, route: ModelRoute | None, vendor_tools: VendorToolRunner) -> Request:
    """Returns the request for a summary, with the same tools in its prompt as in the conversation's own requests.

    Raises:
        RequestError: There is nothing to summarize.
    """
    plan = None if route is None else vendor_tools.plan(request, route)
    return compaction.summary_request(request if plan is None or plan.refused else plan.request)
