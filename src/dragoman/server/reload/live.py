"""Replaces the configuration of one process: builds the new one first, and closes the old one later."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from dragoman.config import Config
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.keys.ring import KeyRing
from dragoman.server.reload.snapshot import Snapshot

log = logging.getLogger("dragoman.server")

MAX_DRAIN_S: Final = 3600.0
"""Time for the requests of a replaced configuration; then what only they use is closed."""

Rebuild: TypeAlias = Callable[[Config, Gateway, Config], Gateway]
"""Builds a gateway from settings, with the parts of the running gateway whose settings are equal: the new settings, the
running gateway, its settings."""


class LiveConfiguration:
    """The configuration that an application serves with, and earlier ones whose requests still run."""

    def __init__(self, app: App, config: Config, rebuild: Rebuild, max_drain_s: float = MAX_DRAIN_S) -> None:
        """Args:
        app: the application.
        config: the settings that it was built from.
        rebuild: builds another gateway.
        max_drain_s: time for the requests of a replaced configuration.
        """
        self._app, self._config, self._rebuild, self._max_drain_s = app, config, rebuild, max_drain_s
        self._next: tuple[Config, Snapshot] | None = None
        self._draining: dict[Snapshot, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def apply(self, config: Config) -> None:
        """Puts these settings in force.

        Raises:
            DragomanError: they are wrong, or a backend does not start; nothing has changed then.
        """
        await self.prepare(config)
        self.commit()

    async def prepare(self, config: Config) -> None:
        """Builds everything from these settings, and checks it, for `commit`.

        Raises:
            DragomanError: the settings are wrong, or a backend does not start.
        """
        await self.abort()
        running = self._app.snapshot.gateway
        gateway = await asyncio.to_thread(self._rebuild, config, running, self._config)
        try:
            await gateway.start_next_to(running)
            snapshot = await asyncio.to_thread(_snapshot, gateway, config)
        except BaseException:
            await self._close(gateway)
            raise
        self._next = config, snapshot

    def commit(self) -> None:
        """Puts in force what was prepared. Running requests finish with the previous configuration."""
        if self._next is None:
            return
        previous = self._app.snapshot
        (self._config, snapshot), self._next = self._next, None
        self._app.replace(snapshot)
        end = partial(self._end, previous)
        self._draining[previous] = asyncio.get_running_loop().call_later(self._max_drain_s, end)
        previous.when_idle(end)

    async def abort(self) -> None:
        """Closes what was prepared."""
        if self._next is not None:
            (_, snapshot), self._next = self._next, None
            await self._close(snapshot.gateway)

    async def close(self) -> None:
        """Closes everything, also what running requests use.

        Raises:
            ExceptionGroup: something could not be closed.
        """
        await self.abort()
        for snapshot in list(self._draining):
            self._end(snapshot)
        if self._closing:
            await asyncio.wait(self._closing)
        await self._app.snapshot.gateway.close()

    def _end(self, snapshot: Snapshot) -> None:
        """Closes what only this configuration uses."""
        if (timer := self._draining.pop(snapshot, None)) is None:
            return
        timer.cancel()
        if snapshot.exchanges:
            log.warning("%d requests have run for too long since a reload, and are broken off", snapshot.exchanges)
        task = asyncio.get_running_loop().create_task(self._close(snapshot.gateway))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, gateway: Gateway) -> None:
        used = [each.gateway for each in (self._app.snapshot, *self._draining)]
        if self._next is not None:
            used.append(self._next[1].gateway)
        try:
            await gateway.close(used)
        except ExceptionGroup:
            log.exception("bug: not everything of the previous configuration could be closed")


def _snapshot(gateway: Gateway, config: Config) -> Snapshot:
    """Returns the configuration of these settings; reads the keys file."""
    return Snapshot(gateway, config.server, config.capture, KeyRing.from_config(config), config)
