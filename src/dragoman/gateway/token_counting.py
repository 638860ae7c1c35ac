"""Counts the tokens of a request, by its backend or as an estimate."""

from typing import NamedTuple

import msgspec

from dragoman.catalog import tokenizers
from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.messages import Request
from dragoman.core.token_estimate import GENERIC
from dragoman.gateway import compaction
from dragoman.gateway.compaction import Seal
from dragoman.gateway.response_builder import summary_request
from dragoman.gateway.routing.router import ModelRoute, Router, rerouted
from dragoman.gateway.storage.response_store import ResponseStore
from dragoman.gateway.vendor_tools import client_run_tools
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.off_loop import off_loop
from dragoman.wire.context_edits import apply_edits_for
from dragoman.wire.history import repair_history


class TokenCount(NamedTuple):
    """The size of a request."""

    tokens: int
    estimated: bool
    cleared: int | None = None
    """Tokens that context edits removed; None if the request asks for none, or if the upstream server makes them."""


class TokenCounter:
    """Counts tokens of requests as their backend would get them."""

    def __init__(
        self, router: Router, response_store: ResponseStore, seal: Seal, vendor_tools: VendorToolRunner
    ) -> None:
        """
        Args:
            router: Selects the backend.
            response_store: Responses that a request may continue.
            seal: Opens compacted conversations.
            vendor_tools: Plans tools that the APIs' vendors run.
        """
        self._router = router
        self._store = response_store
        self._seal = seal
        self._vendor_tools = vendor_tools

    async def count(self, request: Request, client: ClientFacts = ANONYMOUS, *, large: bool = False) -> TokenCount:
        """Returns the tokens of the prompt; an estimate if the backend cannot count them, or if the request names no
        model.

        Args:
            request: The request.
            client: Who sent it.
            large: Whether work on it is done in a thread.

        Raises:
            DragomanError: The request could not be answered either.
        """
        route = (await self._router.routes_or_refresh(request, client))[0] if request.model else None
        request = await off_loop(large or self._store.blocks(request), self._request_to_count, request, route, client)
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

    def _request_to_count(self, request: Request, route: ModelRoute | None, client: ClientFacts) -> Request:
        request = self._store.resolve(request, client.key).request
        vendor_tools = self._vendor_tools.for_client(client)
        if route is not None:
            request, _ = client_run_tools.with_functions(request, route)
        if compaction.uses_compaction(request):
            request, needs_compaction = compaction.prepare_request(request, route, self._seal)
            request = summary_request(request, route, vendor_tools) if needs_compaction else request
        plan = None if route is None else vendor_tools.plan(request, route)
        return request if plan is None else plan.request
