"""Runs the application under uvicorn: one process, SIGTERM lets answers finish and exits 0; so does SIGHUP.

A second SIGTERM, or `shutdown_s`, ends them: streams with an error event of their API, the rest with an error.
`serving` does the same beside something else that runs, whose end is the end of it; signals are then that one's.
"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias, cast

from dragoman import extras
from dragoman.config import ServerConfig
from dragoman.core.errors import ConfigError
from dragoman.gateway.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.client_watch import Receive
from dragoman.server.http_exchange import Scope, Send
from dragoman.server.port_owner import port_owner
from dragoman.server.warm_up import warm_up

try:
    import uvicorn

    from dragoman.server import protocol
except ImportError as e:
    raise ConfigError(f"the gateway needs the server extra: {extras.to_type('server')}") from e

Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LAST_WORDS_S = 2.0
"""Time for the last event of answers that are broken off."""
_LOOP: Final = "uvloop" if sys.platform != "win32" else "asyncio"


class _Server(uvicorn.Server):
    """Uvicorn ends itself with the signal it got, so that a clean end is no exit 0: signals are ours instead."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(
    gateway: Gateway,
    config: ServerConfig,
    announce: Callable[[str], None],
    app: Asgi | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `announce` is told the address once it is open.

    An `app` of your own may stand around the gateway's. `say` is told what the end waits for.

    Raises: ConfigError: the address cannot be listened on.
    Raises: DragomanError: a backend did not come up.
    """
    server = _server(app or App(gateway, config), config)
    with contextlib.closing(_bound(config)) as listener, runner() as r:
        return r.run(_serve(gateway, server, listener, announce, say))


def runner() -> asyncio.Runner:
    """What runs the coroutines of a program that serves."""
    return asyncio.Runner(loop_factory=uvicorn.Config("", loop=_LOOP, log_config=None).get_loop_factory())


@contextlib.asynccontextmanager
async def serving(gateway: Gateway, config: ServerConfig) -> AsyncIterator[str]:
    """Serve as long as the block runs; gives the address. Answers that still run at its end are broken off.

    Raises: ConfigError: the address cannot be listened on. DragomanError: a backend did not come up.
    """
    server = _server(App(gateway, config), config)
    with contextlib.closing(_bound(config)) as listener:
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


def _server(app: Asgi, config: ServerConfig) -> "_Server":
    settings = uvicorn.Config(
        app,
        loop=_LOOP,
        http=cast(Any, protocol.Limits(config.body_timeout_s, config.connections).protocol),
        timeout_keep_alive=round(protocol.IDLE_S),
        ws="none",
        lifespan="off",  # backends begin and end here: uvicorn leaves them alone when it is in a hurry
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(config.shutdown_s),
    )
    return _Server(settings)


def _bound(config: ServerConfig) -> socket.socket:
    """The address taken, before the work of loading a model; nobody is let in yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)  # asyncio holds nothing back on what it knows is TCP
        try:
            if sys.platform != "win32":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as e:
        raise _taken(config.host, config.port, e) from None
    return listener


def _taken(host: str, port: int, error: OSError) -> ConfigError:
    why = (error.strerror or str(error)).lower()
    owner = port_owner(port) if error.errno == errno.EADDRINUSE else ""
    choice = 'ARGS="--port 0"' if "MAKELEVEL" in os.environ else "--port 0"
    return ConfigError(
        f"cannot listen on {host} port {port}: {why}{f' by {owner}' if owner else ''}; choose another with --host and "
        f"--port ({choice} takes a free port)"
    )


async def _serve(
    gateway: Gateway,
    server: _Server,
    listener: socket.socket,
    announce: Callable[[str], None],
    say: Callable[[str], None],
) -> int:
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(gateway.start())

    def stop(number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):  # the terminal was closed: not what usually ends a service
            say(f"{signal.Signals(number).name}: stopping")
        # A second signal does not wait for running answers.
        server.force_exit = server.should_exit
        if (running := len(server.server_state.tasks)) and not server.should_exit:
            answers = "1 running answer" if running == 1 else f"{running} running answers"
            wait_s = server.config.timeout_graceful_shutdown
            say(f"waiting up to {wait_s} s for {answers}; once more to stop now")
        server.should_exit = True
        starting.cancel()

    _on_signals(loop, stop)
    try:
        await asyncio.wait({starting})
        if not starting.cancelled():
            starting.result()
            warm_up(gateway)
            await _listen(server, listener, announce)
    finally:
        await _close(gateway, server)
    return 0


def _on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[int], None]) -> None:
    """Call `stop` in the loop at each signal that ends a service; one that is ignored, as by nohup, stays so."""
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK")
    for number in [getattr(signal, name) for name in names if hasattr(signal, name)]:
        if signal.getsignal(number) == signal.SIG_IGN and number not in (signal.SIGTERM, signal.SIGINT):
            continue
        try:
            loop.add_signal_handler(number, stop, number)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda got, _: loop.call_soon_threadsafe(stop, got))


async def _close(gateway: Gateway, server: _Server) -> None:
    """End the backends, and break off what still runs."""
    for task in (answers := set(server.server_state.tasks)):
        task.cancel()
    await gateway.close()
    if answers:
        await asyncio.wait(answers, timeout=LAST_WORDS_S)


async def _listen(server: _Server, listener: socket.socket, announce: Callable[[str], None]) -> None:
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    url = await _listens(server, listener, running)
    if server.started:
        announce(url)
    await running


async def _listens(server: _Server, listener: socket.socket, running: "asyncio.Future[None]") -> str:
    """The address, once it is open.

    Raises: ConfigError: it cannot be listened on.
    """
    host, port = listener.getsockname()[:2]
    while not server.started and not running.done():
        await asyncio.sleep(0.02)
    if not server.started:
        try:
            await running
        except OSError as e:  # somebody else was faster, between our taking the address and listening
            raise _taken(host, port, e) from None
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
