"""Which replicas have read which beginnings of prompts: a bounded map from hashes of blocks to replicas."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from dragoman.affinity.prompt_blocks import PromptBlocks


class PrefixMatch(NamedTuple):
    """What replicas have read of a prompt."""

    sizes: dict[str, int]
    """By replica: bytes of the longest known prefix; a replica that has read nothing of it is missing."""
    branches: int
    """Number of different continuations that were seen after the longest prefix."""


class _Entry(msgspec.Struct, gc=False):
    holders: tuple[str, ...]
    size_bytes: int
    """Of this block alone."""
    branches: int = 0


class PrefixMap:
    """Blocks by their hashes, the least recently used one first."""

    def __init__(self, max_blocks: int) -> None:
        """
        Args:
            max_blocks: Maximum number of blocks; the least recently used ones are removed. One needs some 300 bytes.
        """
        self._max_blocks = max_blocks
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self.stored_bytes: Counter[str] = Counter()
        """By replica: bytes of all prompts that it has read and that are remembered, shared beginnings once."""

    def __len__(self) -> int:
        """Returns the number of blocks."""
        return len(self._entries)

    def match(self, blocks: PromptBlocks, replicas: Collection[str]) -> PrefixMatch:
        """Returns what these replicas have read of a prompt.

        Args:
            blocks: The prompt.
            replicas: The replicas in question.
        """
        sizes: dict[str, int] = {}
        branches = 0
        for hash, end in zip(reversed(blocks.hashes), reversed(blocks.ends), strict=True):
            if (entry := self._entries.get(hash)) is None:
                continue
            if fresh := [each for each in entry.holders if each in replicas and each not in sizes]:
                branches = branches if sizes else entry.branches
                sizes.update(dict.fromkeys(fresh, end))
                if len(sizes) == len(replicas):
                    break
        return PrefixMatch(sizes, branches)

    def add(self, hashes: Sequence[int], sizes_bytes: Sequence[int], replica: str) -> int:
        """Notes that a replica reads a prompt; returns the number of leading blocks that it is known to have read.

        Args:
            hashes: The hashes of the blocks.
            sizes_bytes: The size of each block.
            replica: The replica.
        """
        read = len(hashes)
        previous: _Entry | None = None
        for number, (hash, size_bytes) in enumerate(zip(hashes, sizes_bytes, strict=True)):
            entry = self._entries.get(hash)
            if entry is None:
                entry = self._entries[hash] = _Entry((), size_bytes)
                if previous is not None:
                    previous.branches += 1
            else:
                self._entries.move_to_end(hash)
            if replica not in entry.holders:
                entry.holders = (*entry.holders, replica)
                self.stored_bytes[replica] += entry.size_bytes
                read = min(read, number)
            previous = entry
        while len(self._entries) > self._max_blocks:
            _, oldest = self._entries.popitem(last=False)
            for each in oldest.holders:
                self.stored_bytes[each] -= oldest.size_bytes
        return read

    def forget(self, replica: str) -> None:
        """Removes a replica that has lost its cache."""
        if not self.stored_bytes.pop(replica, 0):
            return
        for hash, entry in list(self._entries.items()):
            if replica in entry.holders:
                entry.holders = tuple(each for each in entry.holders if each != replica)
                if not entry.holders:
                    del self._entries[hash]
