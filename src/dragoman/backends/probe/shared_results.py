"""Probe results and probe claims in the store of several machines, so that a model is probed once for all replicas."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.probe import cache
from dragoman.backends.probe.cache import CachedProbe
from dragoman.core.errors import BackendUnavailableError
from dragoman.state.store import StateKind, StateStore

_POLL_S: Final = 1.0
_CLAIM_S: Final = 60.0
"""How long the claim of a replica that was killed stays."""
_RENEW_S: Final = 20.0
_MODEL_BYTES: Final = 1000


def _decode(value: bytes) -> CachedProbe:
    return msgspec.json.decode(value, type=CachedProbe)


PROBES: Final = StateKind("probes", msgspec.json.encode, _decode, ttl_s=30 * 86_400.0, is_renewed=True)
CLAIMS: Final = StateKind("probe_claims", str.encode, bytes.decode, ttl_s=_CLAIM_S)


async def fetch(store: StateStore, config: HttpConfig, model: str) -> CachedProbe | None:
    """Returns the result of any replica for this model; None: there is none, or the store is down."""
    try:
        probe = await asyncio.to_thread(store.get, PROBES, cache.key(config, model))
    except BackendUnavailableError:
        return None
    return probe if probe is not None and cache.is_valid(probe) else None


async def offer(store: StateStore, config: HttpConfig, model: str, probe: CachedProbe) -> None:
    """Stores a result for all replicas, unless the store is down.

    Args:
        store: The store of all replicas.
        config: The settings of the server.
        model: The model that was probed.
        probe: The result.
    """
    with suppress(BackendUnavailableError):
        await asyncio.to_thread(store.put, PROBES, cache.key(config, model), probe, _MODEL_BYTES)


@asynccontextmanager
async def claim(store: StateStore, name: str) -> AsyncIterator[None]:
    """Waits until no other replica is in a block with this name; while the store is down, it does not wait."""
    key = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    renewal: asyncio.Task[None] | None = None
    with suppress(BackendUnavailableError):
        while not await asyncio.to_thread(store.put_if_absent, CLAIMS, key, "", 0):
            await asyncio.sleep(_POLL_S)
        renewal = asyncio.create_task(_renew(store, key))
    try:
        yield
    finally:
        if renewal is not None:
            renewal.cancel()
            with suppress(BackendUnavailableError):
                await asyncio.to_thread(store.delete, CLAIMS, key)


async def _renew(store: StateStore, key: str) -> None:
    while True:
        await asyncio.sleep(_RENEW_S)
        with suppress(BackendUnavailableError):
            await asyncio.to_thread(store.put, CLAIMS, key, "", 0)
