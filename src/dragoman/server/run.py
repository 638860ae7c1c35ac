"""Runs the application under uvicorn in one process; on SIGTERM running responses finish and the status is 0.

A second SIGTERM, or `graceful_shutdown_s` seconds, breaks off running responses: streams end with an error event of
their API, other requests get an error. `serving` runs the gateway within another program, which handles the signals
itself.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from dragoman import extras
from dragoman.config.server import NO_CAPTURE, CaptureConfig, ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.records.writer import RecordWriter
from dragoman.server.app import App
from dragoman.server.client_watch import Asgi
from dragoman.server.keys.ring import KeyRing
from dragoman.server.ports import address_in_use, bind, url_of
from dragoman.server.reload.process import ProcessReload, Reloadable
from dragoman.server.warm_up import warm_up
from dragoman.tracing.environment import tracing_from
from dragoman.usage_limits.admission import UsageLimits

if TYPE_CHECKING:
    from dragoman.tracing.exchange import Tracing

try:
    import uvicorn

    from dragoman.server import protocol
except ImportError as e:
    raise ConfigError(f"the gateway needs the server extra: {extras.install_command('server')}") from e

log = logging.getLogger("dragoman.server")

LAST_EVENT_S = 2.0
"""Time for the last event of responses that are broken off."""
_LOOP: Final = "uvloop" if sys.platform != "win32" else "asyncio"


class Server(uvicorn.Server):
    """Without uvicorn's signal handling, which ends the process by the signal; `_serve` handles signals."""

    def __init__(self, settings: "uvicorn.Config", limits: "protocol.ConnectionLimits", app: Asgi) -> None:
        super().__init__(settings)
        self._limits, self._app = limits, app

    def close_after_responses(self) -> None:
        """Closes each connection after its next response, which has `connection: close`."""
        self._limits.is_draining = True

    def begin_drain(self) -> None:
        """Reports at `/ready` that no requests should be sent, and closes connections after their response."""
        self.close_after_responses()
        if isinstance(self._app, App):
            self._app.is_draining = True

    @property
    def running_responses(self) -> int:
        """Number of running responses, without streams of the console, which end by themselves while it drains."""
        streams = self._app.page_streams if isinstance(self._app, App) else 0
        return max(0, len(self.server_state.tasks) - streams)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to `on_signals`."""
        yield


def run(
    gateway: Gateway,
    config: ServerConfig,
    announce: Callable[[str], None],
    app: Asgi | None = None,
    print_status: Callable[[str], None] = lambda text: None,
    capture: CaptureConfig = NO_CAPTURE,
    keys: KeyRing | None = None,
    reloadable: Reloadable | None = None,
    records: RecordWriter | None = None,
    limits: UsageLimits | None = None,
    set_up: Callable[[App], None] = lambda app: None,
) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit status.

    Args:
        gateway: answers the requests.
        config: address, keys and limits.
        announce: receives the URL once the port is open.
        app: an ASGI application of your own around the gateway's.
        print_status: receives what the shutdown waits for.
        capture: which exchanges are written to disk.
        keys: the API keys; None: those of `config`.
        reloadable: what a reload of the configuration needs; None: it cannot be reloaded.
        records: writes a record of each exchange, and is closed at the end; None: there are none.
        limits: counts and limits the use of keys; None: nothing does.
        set_up: receives the gateway's own application, before it serves.

    Raises:
        ConfigError: the address cannot be listened on.
        DragomanError: a backend did not start.
    """
    with (
        closed(records),
        contextlib.closing(bind(config)) as listener,
        traces() as tracing,
        runner() as r,
        closed_limits(limits, r),
    ):
        own = None
        if app is None:
            own = App(gateway, config, capture=capture, keys=keys, tracing=tracing, records=records, limits=limits)
            set_up(own)
        server = new_server(own or cast(Asgi, app), config)
        shutdown = Shutdown(server, print_status, config.drain_delay_s)
        reload = ProcessReload(own, reloadable, shutdown.on_signal) if own and reloadable else None
        return r.run(serve(gateway, server, listener, announce, shutdown, reload))


@contextlib.contextmanager
def closed_limits(limits: UsageLimits | None, runner: asyncio.Runner) -> Iterator[None]:
    """At the end of the block, writes what keys have used and closes the limits.

    Args:
        limits: the limits of keys; None: there are none.
        runner: has run the gateway.
    """
    try:
        yield
    finally:
        if limits is not None:
            runner.run(limits.close())


class Reload(Protocol):
    """Reloads the configuration of a running gateway."""

    def on_sighup(self) -> None:
        """Called at each SIGHUP."""

    async def run(self) -> None:
        """Reloads at each trigger, until it is cancelled."""

    async def close(self) -> None:
        """Closes the gateway, also what earlier configurations use."""


class Shutdown:
    """Stops a server: first lets running responses finish, then breaks them off."""

    def __init__(self, server: "Server", print_status: Callable[[str], None], delay_s: float = 0.0) -> None:
        """Args:
        server: the server.
        print_status: receives what the shutdown waits for.
        delay_s: seconds between the first signal and the end of accepting connections.
        """
        self.server = server
        self._delay_s, self._is_delayed = delay_s, False
        self.starting: asyncio.Future[None] | None = None
        """The start of the backends; it is cancelled too."""
        self._print_status = print_status

    def on_signal(self, number: int) -> None:
        """Drains at the first signal, after the delay; a second one does not wait for running responses."""
        if number not in (signal.SIGTERM, signal.SIGINT):  # the terminal was closed
            self._print_status(f"{signal.Signals(number).name}: stopping")
        if self.server.should_exit or self._is_delayed:
            self.stop_now()
            return
        self.server.begin_drain()
        if self._delay_s and self.server.started:
            self._is_delayed = True
            self._print_status(draining_for(self._delay_s))
            asyncio.get_running_loop().call_later(self._delay_s, self.drain)
        else:
            self.drain()

    def drain(self) -> None:
        """Accepts no more connections, and lets running responses finish within `graceful_shutdown_s`."""
        if not self.server.should_exit:
            self.server.close_after_responses()
            self.on_drain(self.server.running_responses)
        self.server.should_exit = True
        if self.starting is not None:
            self.starting.cancel()

    def stop_now(self) -> None:
        """Breaks off running responses."""
        self.server.force_exit = True
        self.drain()

    def on_drain(self, running: int) -> None:
        """Reports how many responses the shutdown waits for."""
        if text := waiting_for(running, self.server.config.timeout_graceful_shutdown or 0):
            self._print_status(text)


def waiting_for(running: int, wait_s: float) -> str:
    """Returns the text about the responses that a shutdown waits for, or "" if there are none."""
    answers = "1 running answer" if running == 1 else f"{running} running answers"
    return f"waiting up to {wait_s:g} s for {answers}; signal again to stop now" if running else ""


def draining_for(delay_s: float) -> str:
    """Returns the text about requests that are accepted during the delay."""
    setting = f"{delay_s:g} s (setting server.drain_delay_s)"
    return f"/ready has status 503; requests are still accepted for {setting}; signal again to stop now"


@contextlib.contextmanager
def traces() -> "Iterator[Tracing | None]":
    """Yields the traces that the environment asks for, or None; the last spans are exported at the end.

    Raises: ConfigError: the exporter is unknown or not installed, or its settings are invalid.
    """
    tracing = tracing_from(os.environ)
    try:
        yield tracing
    finally:
        if tracing is not None:
            tracing.close()


def closed(records: RecordWriter | None) -> contextlib.AbstractContextManager[object]:
    """Returns a block at whose end the records are closed."""
    return contextlib.nullcontext() if records is None else contextlib.closing(records)


def runner() -> asyncio.Runner:
    """Returns the asyncio runner for a program that serves."""
    return asyncio.Runner(loop_factory=uvicorn.Config("", loop=_LOOP, log_config=None).get_loop_factory())


@contextlib.asynccontextmanager
async def serving(
    gateway: Gateway,
    config: ServerConfig,
    capture: CaptureConfig = NO_CAPTURE,
    records: RecordWriter | None = None,
    set_up: Callable[[App], None] = lambda app: None,
) -> AsyncIterator[str]:
    """Serves as long as the block runs; yields the URL. Responses that still run at its end are broken off.

    Args:
        gateway: answers the requests.
        config: address, keys and limits.
        capture: which exchanges are written to disk.
        records: writes a record of each exchange, and is closed at the end; None: there are none.
        set_up: receives the application, before it serves.

    Raises: ConfigError: the address cannot be listened on. DragomanError: a backend did not start.
    """
    with closed(records), contextlib.closing(bind(config)) as listener, traces() as tracing:
        app = App(gateway, config, capture=capture, tracing=tracing, records=records)
        set_up(app)
        server = new_server(app, config)
        try:
            await gateway.start()
            warm_up(gateway)
            running = asyncio.ensure_future(server.serve(sockets=[listener]))
            try:
                yield await _listens(server, listener, running)
            finally:
                server.should_exit = server.force_exit = True
                await running
        finally:
            await _close(gateway, server)


def new_server(app: Asgi, config: ServerConfig) -> "Server":
    """Returns a uvicorn server for the application, without signal handling."""
    limits = protocol.ConnectionLimits(config.body_timeout_s, config.max_connections)
    settings = uvicorn.Config(
        app,
        loop=_LOOP,
        http=cast(Any, limits.protocol),
        timeout_keep_alive=round(protocol.IDLE_S),
        ws="none",
        lifespan="off",  # backends start and stop here: uvicorn skips the lifespan on a forced exit
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing here reads the client's address
        timeout_graceful_shutdown=round(config.graceful_shutdown_s),
    )
    return Server(settings, limits, app)


async def serve(
    gateway: Gateway,
    server: Server,
    listener: socket.socket,
    announce: Callable[[str], None],
    shutdown: Shutdown,
    reload: Reload | None = None,
) -> int:
    """Serves until `shutdown`, and returns the exit status.

    Args:
        gateway: answers the requests.
        server: the server of its application.
        listener: the bound socket.
        announce: receives the URL once the port is open.
        shutdown: is called at each signal.
        reload: reloads the configuration; None: SIGHUP stops the gateway too.

    Raises:
        ConfigError: the address cannot be listened on.
        DragomanError: a backend did not start.
    """
    starting = shutdown.starting = asyncio.ensure_future(gateway.start())
    on_signals(asyncio.get_running_loop(), shutdown.on_signal, reload.on_sighup if reload else None)
    reloading: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result()
            warm_up(gateway)
            reloading = asyncio.create_task(reload.run()) if reload else None
            await _listen(server, listener, announce)
    finally:
        if reloading is not None:
            reloading.cancel()
            await asyncio.wait({reloading})
        await _close(reload or gateway, server)
    return 0


def on_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[int], None], on_sighup: Callable[[], None] | None = None
) -> None:
    """Calls `stop` in the loop at each signal that stops a service; an ignored one, as under nohup, stays ignored.

    Args:
        loop: the event loop.
        stop: is called with the signal.
        on_sighup: is called at SIGHUP instead, even if it was ignored.
    """
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):
        if (number := getattr(signal, name, None)) is None:
            continue
        if name == "SIGHUP" and on_sighup is not None:
            _on_signal(loop, number, on_sighup)
        elif signal.getsignal(number) != signal.SIG_IGN or number in (signal.SIGTERM, signal.SIGINT):
            _on_signal(loop, number, partial(stop, number))


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, called: Callable[[], None]) -> None:
    try:
        loop.add_signal_handler(number, called)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(called))


async def _close(gateway: Gateway | Reload, server: Server) -> None:
    """Breaks off running responses, and closes the backends."""
    for task in (answers := set(server.server_state.tasks)):
        task.cancel()
    try:
        await gateway.close()
    except ExceptionGroup:  # an error at the start must reach the caller
        log.exception("bug: not everything could be closed")
    finally:
        if answers:
            await asyncio.wait(answers, timeout=LAST_EVENT_S)


async def _listen(server: Server, listener: socket.socket, announce: Callable[[str], None]) -> None:
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    url = await _listens(server, listener, running)
    if server.started:
        announce(url)
    await running


async def _listens(server: Server, listener: socket.socket, running: "asyncio.Future[None]") -> str:
    """Returns the URL, once the port is open.

    Raises: ConfigError: the address cannot be listened on.
    """
    url, port = url_of(listener), listener.getsockname()[1]
    while not server.started and not running.done():
        await asyncio.sleep(0.02)
    if not server.started:
        try:
            await running
        except OSError as e:  # another program was faster, between bind and listen
            raise address_in_use(listener.getsockname()[0], port, e) from None
    return url
