"""Chooses the replica of a model: the one that has read most of the prompt, unless it is much busier."""

import math
from typing import Any

from ray.serve.request_router import LocalityMixin, MultiplexMixin, PendingRequest, RequestRouter, RunningReplica

from dragoman.affinity.prefix_affinity import PrefixAffinity
from dragoman.affinity.prompt_blocks import PromptBlocks


class PrefixRequestRouter(LocalityMixin, MultiplexMixin, RequestRouter):  # type: ignore[misc]
    """A request router of Ray Serve; the second argument of a call is the `PromptBlocks` of its request, or None."""

    def initialize_state(self, **options: Any) -> None:
        """Starts without knowledge."""
        self._affinity = PrefixAffinity()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Returns the replicas in the order in which they are asked.

        Args:
            candidate_replicas: the running replicas.
            pending_request: the request.
        """
        replicas = {each.replica_id.unique_id: each for each in candidate_replicas}
        if pending_request is not None:
            if pending_request.metadata.multiplexed_model_id:
                loaded = self.apply_multiplex_routing(pending_request=pending_request)
                names = {each.unique_id for each in loaded}
                replicas = {name: each for name, each in replicas.items() if name in names} or replicas
            pending_request.routing_context.should_backoff = True
        loads = {name: self._load(each) for name, each in replicas.items()}
        blocks = _blocks(pending_request)
        if blocks is None:
            return [[replicas[name]] for name in sorted(loads, key=lambda name: loads[name])]
        return [[replicas[name]] for name in self._affinity.choose(blocks, loads).replicas]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: Any, result: Any) -> None:
        """Notes which replica reads the prompt."""
        if (blocks := _blocks(pending_request)) is not None:
            self._affinity.note(blocks, replica_id.unique_id)

    def on_replica_actor_died(self, replica_id: Any) -> None:
        """Forgets what the replica has read."""
        self._affinity.forget(replica_id.unique_id)
        super().on_replica_actor_died(replica_id)

    def _load(self, replica: RunningReplica) -> float:
        requests = self.replica_queue_len_cache.get(replica.replica_id) or 0
        return requests if requests < replica.max_ongoing_requests else math.inf


def _blocks(pending_request: PendingRequest | None) -> PromptBlocks | None:
    if pending_request is None or len(pending_request.args) < 2:
        return None
    blocks: PromptBlocks | None = pending_request.args[1]
    return blocks
