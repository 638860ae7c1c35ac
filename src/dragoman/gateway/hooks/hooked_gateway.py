"""A gateway whose requests, tool calls and responses pass the hooks. Without hooks there is only `Gateway`.

Responses are never passed through unparsed. If a hook decides about tool calls, the guard is on and buffers each call
until it is complete, whatever the settings are, and a call that stays invalid is sent as text.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec

from dragoman.core.backend import Backend, EventStream, ExchangeContext, PassthroughResponse
from dragoman.core.collect import Collector
from dragoman.core.events import Notice
from dragoman.core.messages import Request, ToolCall
from dragoman.core.stage import EventStage, LaterRounds
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.hooks.call_veto import CallVeto
from dragoman.gateway.hooks.hook_runner import HookRunner
from dragoman.gateway.response_builder import ResponseBuilder, ResponseJob
from dragoman.gateway.response_stream import BackendAttempt
from dragoman.gateway.routing.route import Routes
from dragoman.gateway.routing.router import ModelRoute
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.guard import feedback
from dragoman.guard.policy import Buffering, GuardPolicy
from dragoman.guard.veto_guard import VetoGuard
from dragoman.prices.price_book import PriceBook
from dragoman.vendor_tools.tool import VendorToolCall


class HookedGateway(Gateway):
    """Generates responses, and calls hooks about them."""

    def __init__(self, hooks: HookRunner, *args: Any, **more: Any) -> None:
        """
        Args:
            hooks: The hooks.
            args: The positional arguments of `Gateway`.
            more: Its other arguments.
        """
        super().__init__(*args, **more)
        self._hooks = hooks
        if hooks.has("on_tool_call"):
            self._vendor_tools = replace(self._vendor_tools, veto=self._veto_tool_run)
            self._builder = _VetoBuilder(hooks, self.response_store, self.policy, self.seal, self._vendor_tools)
        if hooks.has("on_error"):
            self.on_error = (hooks.observe_error,)

    def successor(
        self,
        backends: Sequence[Backend],
        model_aliases: Mapping[str, str | Sequence[str]],
        policy: GuardPolicy,
        vendor_tools: VendorToolRunner,
        prices: PriceBook | None,
        rules: Routes | None,
    ) -> Gateway:
        """Returns a gateway with the same stored responses and hooks; see `Gateway.successor`.

        Args:
            backends: See `Gateway`.
            model_aliases: See `Gateway`.
            policy: Settings of the guard.
            vendor_tools: Runs tools that the APIs' vendors run.
            prices: Prices of the models; None: no price is known.
            rules: Rules that select models; None: there are none.
        """
        parts = (backends, model_aliases, self.response_store, policy, self.seal, vendor_tools, prices, rules)
        return HookedGateway(self._hooks, *parts)

    def passthrough(self, request: Request, body: bytes, context: ExchangeContext) -> PassthroughResponse | None:
        """Returns None if a hook sees requests, calls or responses: a response that is not parsed has none of them."""
        if any(map(self._hooks.has, ("on_request", "on_tool_call", "on_response"))):
            return None
        return super().passthrough(request, body, context)

    async def generate(
        self,
        request: Request,
        context: ExchangeContext,
        buffering: Buffering | None = None,
        client_stages: Sequence[EventStage] = (),
    ) -> EventStream:
        """Yields the events of one response; see `Gateway.generate`.

        Args:
            request: The request of the client.
            context: The exchange.
            buffering: How tool calls are buffered; None: as in the settings.
            client_stages: Further stages, which the events pass last.

        Raises:
            DragomanError: A hook refused the request; or as in `Gateway.generate`.
        """
        request = await self._hooks.change_request(request)
        collector = Collector(request.dialect) if self._hooks.has("on_response") else None
        async with aclosing(super().generate(request, context, buffering, client_stages)) as batches:
            async for batch in batches:
                yield batch
                if collector is not None:
                    for event in batch:
                        collector.feed(event)
        if collector is not None and collector.error is None:
            self._hooks.observe_response(collector.reply(), request)

    async def _veto_tool_run(self, call: VendorToolCall, request: Request) -> str:
        """Returns the message to the model if a hook refuses a call that the gateway would run; else ""."""
        name = call.tool.name
        reason = await self._hooks.veto(ToolCall(call.id, name, call.arguments), request)
        return feedback.vetoed_call(name, reason) if reason else ""


class _VetoBuilder(ResponseBuilder):
    """Prepares responses whose calls hooks decide about."""

    def __init__(self, hooks: HookRunner, *args: Any) -> None:
        super().__init__(*args)
        self._hooks = hooks

    def attempt(
        self, job: ResponseJob, route: ModelRoute, warnings: Sequence[Notice], client_stages: Sequence[EventStage]
    ) -> BackendAttempt:
        """Returns the attempt, with the decisions about its calls."""
        attempt = super().attempt(job, route, warnings, client_stages)
        for stage in attempt.pipeline.stages:
            if isinstance(stage, VetoGuard):
                veto = CallVeto(stage, self._hooks, attempt.request)
                return msgspec.structs.replace(attempt, generate=veto.wrap(attempt.generate), wrap=veto.wrap)
        return attempt

    def _guard(self, request: Request, policy: GuardPolicy, later: LaterRounds | None) -> EventStage:
        return VetoGuard(request, policy, later)

    def _policy_for(self, request: Request, buffering: Buffering | None) -> GuardPolicy | None:
        return msgspec.structs.replace(self._policy, enabled=True, buffering="all")
