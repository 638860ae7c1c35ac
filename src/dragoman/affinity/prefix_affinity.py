"""Chooses among the replicas of a model: prompt caches first, unless they make one replica busier than the others.

    may be chosen     requests in flight ≤ least + known share of the prompt · max(`EXCESS`, `EXCESS_RATIO` · least)
    best              the longest known prefix; then the least busy; then the fewest recent requests

A prompt without a known prefix therefore goes to the least busy replica; if several are, to the first of them in an
order that depends on its conversation alone (rendezvous hashing), so that gateways that share nothing choose alike. A
replica with over a tenth more of the remembered prompts than the mean is passed over.

A prefix that several conversations share is worth less: each replica needs to read it only once. It may make a replica
only slightly busier (`SHARED_EXCESS`, `SHARED_EXCESS_RATIO`), and none with over a tenth more of the recent requests.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.affinity.prefix_map import PrefixMap
from dragoman.affinity.prompt_blocks import PromptBlocks, response_hash

MAX_BLOCKS: Final = 65_536
EXCESS: Final = 8.0
"""Requests that a replica with the whole prompt in its cache may have more than the least busy one."""
EXCESS_RATIO: Final = 0.5
"""The same in proportion to the requests of the least busy one; the larger limit applies."""
SHARED_EXCESS: Final = 2.0
SHARED_EXCESS_RATIO: Final = 0.25
NEW_EXCESS: Final = 1.0
"""The same for a prompt that no replica knows, if none is idle: a better balance of the caches is worth it."""
_MEAN_RATIO: Final = 1.1
_RECENT: Final = 1024
"""After so many requests, earlier ones count half."""
_SHARED_BRANCHES: Final = 2
"""Continuations of a prefix that make the next one a new conversation, not a repeated turn."""

ChoiceReason: TypeAlias = Literal["prefix", "shared", "new", "busy"]
"""Why a replica is the first.

`prefix`: it has the longest known prefix. `shared`: so have other conversations, which are balanced. `new`: no replica
has read it. `busy`: a busier replica has a longer prefix.
"""


class ReplicaChoice(NamedTuple):
    """An order of replicas."""

    replicas: Sequence[str]
    """All replicas: first the chosen one, then the others, the least busy ones first."""
    reason: ChoiceReason
    known_share: float
    """Share of the prompt that the first replica has read, from 0 to 1."""


class PrefixNews(NamedTuple):
    """Blocks that a replica has read; the first one may be known already."""

    replica: str
    hashes: Sequence[int]
    sizes_bytes: Sequence[int]


class PrefixAffinity:
    """What the replicas of models have read, as far as one process knows."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        """
        Args:
            max_blocks: See `PrefixMap`; a long conversation has about a hundred blocks.
        """
        self._map = PrefixMap(max_blocks)
        self._recent: dict[str, float] = {}
        """Recent requests of each replica."""
        self._noted = 0

    def choose(self, blocks: PromptBlocks, loads: Mapping[str, float]) -> ReplicaChoice:
        """Returns the order in which replicas are asked.

        Args:
            blocks: The prompt.
            loads: By replica: its requests in flight, those that wait included; infinite: it accepts none now.
        """
        usable = {replica: load for replica, load in loads.items() if load < math.inf}
        if not usable:
            return ReplicaChoice(tuple(loads), "new", 0.0)
        known, branches = self._map.match(blocks, usable)
        shares = {replica: known.get(replica, 0) / max(blocks.size_bytes, 1) for replica in usable}
        least = min(usable.values())
        is_shared = branches >= _SHARED_BRANCHES
        excess, ratio = (SHARED_EXCESS, SHARED_EXCESS_RATIO) if is_shared else (EXCESS, EXCESS_RATIO)
        slack = max(excess, ratio * least)
        allowed: Sequence[str] = [
            replica for replica, load in usable.items() if load <= least + shares[replica] * slack
        ]
        if is_shared:
            allowed = _near_mean(allowed, usable, self._recent)
        elif not any(shares[replica] for replica in allowed):
            busiest = least + min(least, NEW_EXCESS)
            allowed = [replica for replica, load in usable.items() if load <= busiest]
            allowed = _near_mean(allowed, usable, self._map.stored_bytes)

        def rank(replica: str) -> tuple[float, float, float, int]:
            requests = self._recent.get(replica, 0) if shares[replica] else 0
            return -shares[replica], usable[replica], requests, -_rendezvous(blocks.conversation, replica)

        first = min(allowed, key=rank)
        others = sorted((each for each in loads if each != first), key=lambda each: (loads[each], -shares.get(each, 0)))
        longest = max(shares.values())
        reason: ChoiceReason = "prefix" if longest else "new"
        if is_shared:
            reason = "shared"
        elif shares[first] < longest:
            reason = "busy"
        return ReplicaChoice((first, *others), reason, shares[first])

    def note(self, blocks: PromptBlocks, replica: str, reply_id: str = "") -> PrefixNews:
        """Notes that a prompt is sent to a replica; returns what other processes do not know yet.

        Args:
            blocks: The prompt.
            replica: The replica.
            reply_id: Id of a response that later requests may continue by it; empty: none does.
        """
        self._recent[replica] = self._recent.get(replica, 0) + 1
        self._noted += 1
        if self._noted % _RECENT == 0:
            self._recent = {each: count / 2 for each, count in self._recent.items()}
        hashes, ends = blocks.hashes, blocks.ends
        sizes = tuple(end - begin for begin, end in zip((0, *ends), ends, strict=False))
        if reply_id:
            hashes, sizes = (*hashes, response_hash(reply_id)), (*sizes, 1)
        first = max(self._map.add(hashes, sizes, replica) - 1, 0)
        return PrefixNews(replica, hashes[first:], sizes[first:])

    def learn(self, news: PrefixNews) -> None:
        """Adds what another process noted."""
        self._map.add(news.hashes, news.sizes_bytes, news.replica)

    def forget(self, replica: str) -> None:
        """Removes what a replica has read: it failed, or was restarted."""
        self._map.forget(replica)


def _near_mean(replicas: Sequence[str], usable: Collection[str], counts: Mapping[str, float]) -> Sequence[str]:
    """Returns those of the replicas whose count is at most slightly over the mean, at least one.

    Args:
        replicas: The replicas.
        usable: Those of the mean.
        counts: The counts; of replicas that are missing, 0.
    """
    mean = sum(counts.get(each, 0) for each in usable) / len(usable)
    limit = max(_MEAN_RATIO * mean, min(counts.get(each, 0) for each in replicas))
    return [each for each in replicas if counts.get(each, 0) <= limit]


def _rendezvous(conversation: int, replica: str) -> int:
    data = conversation.to_bytes(8) + replica.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest())
