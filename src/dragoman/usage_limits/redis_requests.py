"""Counts the running requests of each key in Redis or Valkey, for several machines.

Each request has a lease in a sorted set. Its process renews it; the leases of a process that has ended expire.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from contextlib import suppress
from typing import Any, Final

from dragoman.core.identifiers import random_id
from dragoman.usage_limits.concurrency import LocalRequests, RunningRequests

log = logging.getLogger("dragoman.usage_limits")

_LEASE_S: Final = 60
_RENEW_S: Final = 20.0
_TAKE: Final = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[3]) * 2)
return 1
"""
_RENEW: Final = """
local now = tonumber(redis.call('TIME')[1])
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[1]) * 2)
"""
_COUNT: Final = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', tonumber(redis.call('TIME')[1]))
return redis.call('ZCARD', KEYS[1])
"""


class RedisRequests(RunningRequests):
    """The running requests of all gateways that use a server; if it fails, this process counts by itself."""

    def __init__(self, client: Any, errors: tuple[type[Exception], ...]) -> None:
        """Args:
        client: A client of the package redis, with asyncio.
        errors: What it raises if the server cannot be used.
        """
        self._client, self._errors = client, errors
        self._take, self._renew, self._count = (client.register_script(text) for text in (_TAKE, _RENEW, _COUNT))
        self._leases: defaultdict[str, list[str]] = defaultdict(list)
        self._local = LocalRequests()
        self._counted_locally: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def take(self, key: str, limit: int) -> bool:
        """Counts a request if fewer than `limit` run; returns whether that is so."""
        lease = random_id()
        try:
            is_counted = await self._take([_name(key)], [limit, lease, _LEASE_S])
        except asyncio.CancelledError:
            self._remove_later(key, lease)  # the server may have counted it
            raise
        except self._errors as error:
            log.warning("running requests cannot be counted in limits.url (%s)", type(error).__name__)
            is_counted = await self._local.take(key, limit)
            self._counted_locally[key] += is_counted
            return bool(is_counted)
        if is_counted:
            self._leases[key].append(lease)
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew_leases())
        return bool(is_counted)

    def release(self, key: str) -> None:
        """Ends a counted request."""
        if self._counted_locally[key]:
            self._counted_locally[key] -= 1
            self._local.release(key)
            return
        self._remove_later(key, self._leases[key].pop())

    async def count(self, key: str) -> int:
        """Returns the number of running requests."""
        try:
            return int(await self._count([_name(key)], []))
        except self._errors:
            return await self._local.count(key)

    async def close(self) -> None:
        """Ends the leases of this process, and closes the connections."""
        if self._renewing is not None:
            self._renewing.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for key, leases in self._leases.items():
            for lease in leases:
                await self._remove(key, lease)
        await self._client.aclose()

    def _remove_later(self, key: str, lease: str) -> None:
        task = asyncio.create_task(self._remove(key, lease))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _remove(self, key: str, lease: str) -> None:
        with suppress(*self._errors):  # it expires then
            await self._client.zrem(_name(key), lease)

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            for key, leases in list(self._leases.items()):
                if leases:
                    with suppress(*self._errors):
                        await self._renew([_name(key)], [_LEASE_S, *leases])


def _name(key: str) -> str:
    return f"dragoman:running:{key}"
