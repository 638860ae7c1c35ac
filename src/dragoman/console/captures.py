"""Captured exchanges by their request id: those that run, those in memory, and those on disk."""

import asyncio
from collections.abc import Callable

from dragoman.config.server import NO_CAPTURE
from dragoman.console.api import CaptureState
from dragoman.console.workers import ConsoleFolder
from dragoman.server.app import App
from dragoman.server.capture.load import LoadedCapture
from dragoman.server.capture.memory import MemoryCaptures
from dragoman.server.capture.store import CaptureStore
from dragoman.server.observe.live_feed import LiveFeed
from dragoman.server.reload.snapshot import Snapshot


class ConsoleCaptures:
    """The captures of a gateway process, and the switch for those in memory."""

    def __init__(self, app: App, filter: str, feed: LiveFeed, folder: ConsoleFolder | None = None) -> None:
        """Args:
        app: the gateway.
        filter: which exchanges are captured to disk.
        feed: the running exchanges.
        folder: where captures are for all processes of the gateway; None: there is one process.
        """
        self._app, self._filter, self._feed, self._folder = app, filter, feed, folder
        self._is_on = False
        self._memory = MemoryCaptures()

    def state(self) -> CaptureState:
        """Returns whether exchanges are captured."""
        if self._app.snapshot.captures_to_disk:
            return CaptureState(mode="disk", filter=self._filter)
        is_on = self._is_on if self._folder is None else self._folder.is_capturing
        return CaptureState(mode="memory", filter="all") if is_on else CaptureState(mode="off")

    def switch(self, is_on: bool) -> None:
        """Begins or ends to capture exchanges in all processes; at the end, these captures are deleted."""
        if self._folder is not None:
            self._folder.switch_captures(is_on)
        self.set_capturing(is_on)

    def set_capturing(self, is_on: bool) -> None:
        """Begins or ends to capture exchanges in this process."""
        if is_on != self._is_on:
            self._is_on = is_on
            self._memory = MemoryCaptures()  # exchanges that still end are added to the previous ones
            self._app.capture_for_console(self._new_store if is_on else None)
            if not is_on and self._folder is not None:
                self._folder.delete_captures()

    def _new_store(self, snapshot: Snapshot) -> CaptureStore:
        """Returns the captures of a configuration."""
        config = NO_CAPTURE if self._folder is None else self._folder.capture_config()
        place = self._memory if self._folder is None else None
        return CaptureStore(config, snapshot.gateway, snapshot.keys.plain_secrets(), memory=place)

    def ids(self) -> frozenset[str]:
        """Returns the request ids of the captures that can be read. Reads a folder if captures are on disk."""
        captures = self._app.snapshot.captures
        ended = [] if captures is None else [name.partition("-")[2] for name in captures.names()]
        return frozenset(ended)

    def newest_ids(self) -> list[str]:
        """Returns the request ids of all captures, the newest first."""
        captures = self._app.snapshot.captures
        return [] if captures is None else [name.partition("-")[2] for name in reversed(captures.names())]

    def is_running(self, id: str) -> bool:
        """Returns whether an exchange still runs."""
        return id in self._feed.running

    async def load(self, id: str) -> LoadedCapture | None:
        """Returns what is captured of an exchange, also of one that still runs; None: nothing.

        Args:
            id: the request id.

        Raises:
            ConfigError: the capture is damaged.
        """
        captures, running = self._app.snapshot.captures, self._feed.running.get(id)
        if captures is None:
            return None
        if running is not None and running.capture is not None:
            files = await asyncio.to_thread(captures.files_so_far, running.capture, running.record.facts())
            return LoadedCapture(id, files)
        return await asyncio.to_thread(self._load, captures, id)

    def earlier(self, id: str) -> tuple[list[str], Callable[[str, str], bytes | None]]:
        """Returns the request ids of the captures before this one, the newest first, and what reads a file of one.

        Args:
            id: the request id; that of an exchange that still runs is after all of them.
        """
        captures = self._app.snapshot.captures
        names = {} if captures is None else {name.partition("-")[2]: name for name in reversed(captures.names())}
        ids = list(names)

        def read(other: str, file: str) -> bytes | None:
            return None if captures is None else captures.read_file(names[other], file)

        return (ids[ids.index(id) + 1 :] if id in names else ids), read

    def _load(self, captures: CaptureStore, id: str) -> LoadedCapture | None:
        if (name := _name_of(captures, id)) is None:
            captures.wait_idle()  # the exchange may have ended just now
            name = _name_of(captures, id)
        files = None if name is None else captures.read(name)
        return None if name is None or files is None else LoadedCapture(name, files)


def _name_of(captures: CaptureStore, id: str) -> str | None:
    return next((name for name in captures.names() if name.endswith(f"-{id}")), None)
