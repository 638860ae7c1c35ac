"""Running requests that a server counts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from dragoman.usage_limits.redis_requests import RedisRequests

pytestmark = pytest.mark.asyncio


class Client:
    """A client whose server counts a lease, and then does not answer."""

    def __init__(self) -> None:
        self.leases: set[object] = set()
        self.counted = asyncio.Event()

    def register_script(self, text: str) -> Callable[[Sequence[str], Sequence[object]], Awaitable[int]]:
        async def run(keys: Sequence[str], arguments: Sequence[object]) -> int:
            self.leases.add(arguments[1])
            self.counted.set()
            await asyncio.Event().wait()
            return 1

        return run

    async def zrem(self, name: str, lease: str) -> None:
        self.leases.remove(lease)

    async def aclose(self) -> None:
        """Does nothing."""


async def test_lease_of_a_cancelled_request_is_removed() -> None:
    client = Client()
    requests = RedisRequests(client, (OSError,))
    taking = asyncio.create_task(requests.take("alice", 1))
    await client.counted.wait()
    assert client.leases
    taking.cancel()
    await asyncio.wait([taking])
    assert taking.cancelled()
    await requests.close()
    assert not client.leases
