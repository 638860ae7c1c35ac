"""Exchanges with other gateways which servers have read which prompts, through the store of shared state.

    publish ──`BATCH_S` later, with all others of that time──→ log "prefixes" ──on a miss, and after publishing──→ learn

A gateway learns what others publish after its start. That is at most `BATCH_S` old when it sees a prompt that it does
not know; a prompt of which it knows an earlier turn may have moved to another server since its own last request. This,
lost entries and a store that cannot be used cost misses of prompt caches, nothing else. Hashes are exchanged, no text.
That a server was restarted is not published: each gateway notices it itself.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from dragoman.affinity.prefix_affinity import PrefixAffinity, PrefixNews
from dragoman.core.errors import BackendUnavailableError
from dragoman.state.store import LogPage, StateStore

log = logging.getLogger("dragoman.gateway.gateway")

BATCH_S: Final = 0.1
MISS_TIMEOUT_S: Final = 0.05
"""How long a request may wait for what other gateways know."""
_LOG: Final = "prefixes"
_MAX_PENDING: Final = 10_000
"""Number of requests that are remembered for the others while the store cannot be used."""


class _Batch(msgspec.Struct, array_like=True):
    sender: bytes
    news: Sequence[PrefixNews]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Batch).decode


class SharedPrefixes:
    """What was published but not yet sent, and how far the log was read."""

    def __init__(self, affinity: PrefixAffinity, store: StateStore) -> None:
        """
        Args:
            affinity: Learns what other gateways publish.
            store: The store that the gateways share.
        """
        self._affinity, self._store = affinity, store
        self._sender = os.urandom(8)
        self._position = ""
        self._pending: list[PrefixNews] = []
        self._flush: asyncio.Task[None] | None = None
        self._read: asyncio.Task[bool] | None = None

    def publish(self, news: PrefixNews) -> None:
        """Publishes what a server reads, soon and in the background."""
        if len(self._pending) < _MAX_PENDING:
            self._pending.append(news)
        if self._flush is None or self._flush.done():
            self._flush = asyncio.create_task(self._flush_soon())

    async def read_on_miss(self) -> bool:
        """Reads what other gateways have published; returns whether there was anything within `MISS_TIMEOUT_S`."""
        task = self._reading()
        done, _ = await asyncio.wait([task], timeout=MISS_TIMEOUT_S)
        return bool(done) and task.result()

    async def _flush_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(BATCH_S)
            pending, self._pending = self._pending, []
            batch = _encode(_Batch(self._sender, pending))
            try:
                await asyncio.to_thread(self._store.append, _LOG, batch)
            except BackendUnavailableError:  # logged by the store
                continue
            await self._reading()

    def _reading(self) -> "asyncio.Task[bool]":
        """Returns the task that reads the log: a new one, unless one is running."""
        if self._read is None or self._read.done():
            self._read = asyncio.create_task(self._learn())
        return self._read

    async def _learn(self) -> bool:
        """Reads the log, and returns whether it had anything new of others."""
        try:
            page: LogPage = await asyncio.to_thread(self._store.read_log, _LOG, self._position)
        except BackendUnavailableError:
            return False
        self._position, has_new = page.position, False
        for value in page.values:
            try:
                batch = _decode(value)
            except msgspec.DecodeError:  # of another version
                continue
            if batch.sender != self._sender:
                has_new = True
                for news in batch.news:
                    self._affinity.learn(news)
        return has_new
