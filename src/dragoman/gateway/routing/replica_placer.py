"""Places the requests of rules with `balance = "prefix"` at the server that has read most of their prompts.

The servers of such a request are replicas of one model. What they have read is known from the requests that were sent
to them (`affinity`). A server that cannot be reached is forgotten, and comes last for a while.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from dragoman.affinity.prefix_affinity import PrefixAffinity, ReplicaChoice
from dragoman.affinity.prompt_blocks import PromptBlocks, prompt_blocks
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import BackendUnavailableError, DragomanError, UpstreamError
from dragoman.core.messages import Request
from dragoman.gateway.routing.router import ModelRoute, backend_name, requests_of
from dragoman.gateway.routing.shared_prefixes import SharedPrefixes
from dragoman.off_loop import off_loop
from dragoman.state.store import StateStore

AVOIDED_S: Final = 10.0
"""How long a server that could not be reached comes last; then one request tries it."""
_STATUS_RESTARTING: Final = (502, 503)


class ReplicaPlacer:
    """What the servers have read, and how busy they are."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            now_s: Monotonic clock, in seconds.
        """
        self._affinity = PrefixAffinity()
        self._shared: SharedPrefixes | None = None
        self._now_s = now_s
        self._active: Counter[str] = Counter()
        self._avoided_until_s: dict[str, float] = {}

    def share(self, store: StateStore) -> None:
        """Exchanges what was placed with other gateways, through this store."""
        self._shared = SharedPrefixes(self._affinity, store)

    async def start(self) -> None:
        """Notes from where on to read what other gateways place; does not wait for a store that cannot be used."""
        if self._shared is not None:
            await self._shared.read_on_miss()

    def preview(self, request: Request, routes: Sequence[ModelRoute]) -> list[ModelRoute]:
        """Returns the routes in the order in which they would be tried now.

        Args:
            request: The request of the client.
            routes: The routes to all replicas.
        """
        by_name = {_name(route): route for route in routes}
        choice = self._affinity.choose(prompt_blocks(request), self._loads(by_name))
        return [by_name[replica] for replica in choice.replicas]

    async def choose(self, blocks: PromptBlocks, routes: Mapping[str, ModelRoute]) -> ReplicaChoice:
        """Returns the order in which replicas are tried.

        Args:
            blocks: The prompt.
            routes: The route to each replica.
        """
        choice = self._affinity.choose(blocks, self._loads(routes))
        if choice.reason == "new" and self._shared is not None and await self._shared.read_on_miss():
            choice = self._affinity.choose(blocks, self._loads(routes))
        return choice

    def begin(self, blocks: PromptBlocks, replica: str, reply_id: str) -> None:
        """A request is sent to a replica.

        Args:
            blocks: The prompt.
            replica: The replica.
            reply_id: Id of the response, if the client may continue it; else empty.
        """
        self._active[replica] += 1
        news = self._affinity.note(blocks, replica, reply_id)
        if self._shared is not None:
            self._shared.publish(news)

    def end(self, replica: str) -> None:
        """A request to a replica has ended."""
        self._active[replica] -= 1

    def fail(self, replica: str, error: DragomanError) -> None:
        """A replica has failed; if it cannot be reached, its prompt cache is probably lost."""
        is_restarting = isinstance(error, UpstreamError) and error.status in _STATUS_RESTARTING
        if is_restarting or isinstance(error, BackendUnavailableError):
            self._avoid(replica)

    def _avoid(self, replica: str) -> None:
        self._affinity.forget(replica)
        self._avoided_until_s[replica] = self._now_s() + AVOIDED_S

    def _loads(self, routes: Mapping[str, ModelRoute]) -> dict[str, float]:
        """Returns the requests in flight of each replica; infinite if it is avoided, unless all are."""
        loads: dict[str, float] = {}
        avoided: dict[str, float] = {}
        for replica, (backend, request) in routes.items():
            health = backend.health()
            load = max(requests_of(health, request.model), self._active[replica])
            is_failing = health.get("breaker", "closed") != "closed"
            (avoided if self._is_avoided(replica, is_failing=is_failing) else loads)[replica] = load
        return loads | dict.fromkeys(avoided, math.inf) if loads else avoided

    def _is_avoided(self, replica: str, *, is_failing: bool) -> bool:
        """Returns whether a replica comes last now.

        Args:
            replica: The replica.
            is_failing: Whether its circuit breaker is not closed.
        """
        until_s = self._avoided_until_s.get(replica)
        if until_s is None:
            if is_failing:
                self._avoid(replica)
            return is_failing
        if self._now_s() < until_s:
            return True
        if is_failing:
            self._avoided_until_s[replica] = self._now_s() + AVOIDED_S  # one request tries it, others follow later
        else:
            del self._avoided_until_s[replica]
        return False


class PlacedExchange:
    """One request, at the replica that it was sent to last."""

    def __init__(self, placer: ReplicaPlacer, context: ExchangeContext) -> None:
        """
        Args:
            placer: Places the requests of the gateway.
            context: The exchange.
        """
        self._placer, self._context = placer, context
        self._blocks: PromptBlocks | None = None
        self._reply_id = ""
        self._replica = ""

    async def order(self, request: Request, routes: Sequence[ModelRoute]) -> list[ModelRoute]:
        """Returns the routes in the order in which they are tried, and begins the first.

        Args:
            request: The request of the client.
            routes: The routes to all replicas.
        """
        if len(routes) < 2:
            return list(routes)
        by_name = {_name(route): route for route in routes}
        self._blocks = await off_loop(self._context.is_large, prompt_blocks, request)
        self._reply_id = self._context.id if request.store else ""
        choice = await self._placer.choose(self._blocks, by_name)
        self._context.attempts.placement = choice.reason
        ordered = [by_name[replica] for replica in choice.replicas]
        self.begin(ordered[0])
        return ordered

    def begin(self, route: ModelRoute) -> None:
        """The request is sent to a replica."""
        if self._blocks is not None:
            self._replica = _name(route)
            self._placer.begin(self._blocks, self._replica, self._reply_id)

    def fail(self, error: DragomanError) -> None:
        """The replica has failed."""
        if self._replica:
            self._placer.fail(self._replica, error)
        self._end()

    async def track(self, events: EventStream) -> EventStream:
        """Yields the events of the response; the request ends with them."""
        try:
            async with aclosing(events) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._end()

    def _end(self) -> None:
        if self._replica:
            self._placer.end(self._replica)
            self._replica = ""


def _name(route: ModelRoute) -> str:
    return f"{backend_name(route.backend)}/{route.request.model}"
