"""Serves the application in one of several processes (`server.workers`), as a supervisor orders.

Each worker has a socket of its own at the same port, and all other workers' too: while another worker is down, one that
runs accepts its connections. Frames to the worker:

    ["listen", [number]]  accept connections of these sockets      ["drain"]  let running responses finish, then end
    ["stop"]              break them off, and end                  ["orphaned"]  the supervisor is gone: as "stop"
    ["unready"]           /ready has status 503 from now on

Frames from it: ["ready", models], ["draining", running responses].
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dragoman.cli._workers.worker_reload import WorkerReload
from dragoman.config import Config
from dragoman.gateway.gateway import Gateway
from dragoman.records.writer import RecordWriter
from dragoman.server.app import App
from dragoman.server.keys.ring import KeyRing
from dragoman.server.reload.live import Rebuild
from dragoman.server.run import Server, Shutdown, closed, closed_limits, new_server, runner, serve, traces
from dragoman.usage_limits.admission import UsageLimits

log = logging.getLogger("dragoman.serve")


class Supervised(Protocol):
    """The worker's side of the connection to its supervisor."""

    def send(self, *frame: object) -> None:
        """Sends a frame to the supervisor."""

    def attach(self, handler: Callable[[Sequence[Any]], None]) -> None:
        """Calls the handler in this event loop with each frame of the supervisor, also those that have arrived."""


def run_worker(
    gateway: Gateway,
    config: Config,
    rebuild: Rebuild,
    sockets: Sequence[socket.socket],
    number: int,
    supervised: Supervised,
    report: Callable[[str], None],
    shared_dir: Path,
    keys: KeyRing,
    records: RecordWriter | None = None,
    limits: UsageLimits | None = None,
    set_up: Callable[[App], None] = lambda app: None,
) -> int:
    """Serves until the supervisor or a signal stops it, and returns the exit status.

    Args:
        gateway: answers the requests.
        config: the settings.
        rebuild: builds another gateway for a reload.
        sockets: the bound sockets of all workers; closed at the end.
        number: the index of the worker; where there is one socket only, it is the own socket of each.
        supervised: the connection to the supervisor.
        report: receives lines for the user.
        shared_dir: the private folder of all workers.
        keys: the API keys.
        records: writes a record of each exchange; None: there are none.
        limits: counts and limits the use of keys; None: nothing does.
        set_up: receives the application before it serves.

    Raises:
        DragomanError: a backend did not start.
    """
    own = number % len(sockets)
    with (
        contextlib.ExitStack() as opened,
        closed(records),
        traces() as tracing,
        runner() as r,
        closed_limits(limits, r),
    ):
        app = App(
            gateway,
            config.server,
            capture=config.capture,
            shared_dir=shared_dir,
            keys=keys,
            tracing=tracing,
            records=records,
            limits=limits,
        )
        set_up(app)
        server = new_server(app, config.server)
        for each in sockets:
            opened.enter_context(contextlib.closing(each))
        reload = WorkerReload(app, config, rebuild, supervised)
        worker = _Worker(server, {n: each for n, each in enumerate(sockets) if n != own}, supervised, report, reload)
        return r.run(worker.run(gateway, sockets[own]))


class _Worker(Shutdown):
    def __init__(
        self,
        server: Server,
        others: Mapping[int, socket.socket],
        supervised: Supervised,
        report: Callable[[str], None],
        reload: WorkerReload,
    ) -> None:
        super().__init__(server, report)
        self._others, self._supervised, self._reload = dict(others), supervised, reload
        self._numbers: frozenset[int] = frozenset()
        self._accepting: dict[int, asyncio.Server] = {}
        """The other workers' sockets whose connections this one accepts."""
        self._adjusting: asyncio.Task[None] | None = None

    async def run(self, gateway: Gateway, own: socket.socket) -> int:
        """Serves until it is stopped, and returns the exit status."""
        self._supervised.attach(self._on_frame)

        def ready(url: str) -> None:
            names = [model.id for model in gateway.models() if model.id not in model.aliases]
            self._supervised.send("ready", names)
            self._listen(self._numbers)

        return await serve(gateway, self.server, own, ready, self, self._reload)

    def on_signal(self, number: int) -> None:
        """Drains, however often: a service manager may signal this process and the supervisor, which says when to
        stop.
        """
        self.drain()

    def on_drain(self, running: int) -> None:
        """Reports to the supervisor, and stops accepting connections for other workers."""
        self._supervised.send("draining", running)
        self._close_accepting()
        for listener in self._others.values():
            listener.close()

    def _on_frame(self, frame: Sequence[Any]) -> None:
        if self._reload.on_frame(frame):
            return
        match frame:
            case ["listen", numbers]:
                self._listen(numbers)
            case ["unready"]:
                self.server.begin_drain()
            case ["drain"]:
                self.server.begin_drain()
                self.drain()
            case _:
                self.stop_now()

    def _listen(self, numbers: Iterable[int]) -> None:
        self._numbers = frozenset(numbers) & self._others.keys()
        if self.server.started and self._adjusting is None and self._numbers != self._accepting.keys():
            self._adjusting = asyncio.ensure_future(self._adjust())

    async def _adjust(self) -> None:
        """Begins and ends to accept connections of other workers' sockets, until they are the ordered ones."""
        try:
            while not self.server.should_exit and (changed := self._numbers ^ self._accepting.keys()):
                number = min(changed)
                if number in self._accepting:
                    self._accepting.pop(number).close()
                else:
                    self._accepting[number] = await self._accept(self._others[number])
        except OSError as error:
            log.warning("the connections of another worker are not accepted: %s", error)
        finally:
            self._adjusting = None
        if self.server.should_exit:
            self._close_accepting()

    def _close_accepting(self) -> None:
        for accepting in self._accepting.values():
            accepting.close()
        self._accepting.clear()

    async def _accept(self, listener: socket.socket) -> asyncio.Server:
        config, loop = self.server.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            settings: dict[str, Any] = {"config": config, "server_state": self.server.server_state}
            new: Any = config.http_protocol_class
            made: asyncio.Protocol = new(**settings, app_state=self.server.lifespan.state, _loop=loop)
            return made

        return await loop.create_server(protocol, sock=listener.dup(), backlog=config.backlog)
