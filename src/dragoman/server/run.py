"""Runs the application under uvicorn: one process, SIGTERM lets answers finish and exits 0."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator

from dragoman.core.errors import ConfigError
from dragoman.gateway import Gateway
from dragoman.server.app import App
from dragoman.server.config import ServerConfig

try:
    import uvicorn
except ImportError as e:
    raise ConfigError("the gateway needs the server extra: pip install 'dragoman[server]'") from e


class _Server(uvicorn.Server):
    """Uvicorn ends itself with the signal it got, so that a clean end is no exit 0: signals are ours instead."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(gateway: Gateway, config: ServerConfig, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. `announce` is told the address once it is open."""
    settings = uvicorn.Config(
        App(gateway, config),
        host=config.host,
        port=config.port,
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(config.shutdown_s),
    )
    with asyncio.Runner(loop_factory=settings.get_loop_factory()) as runner:
        return runner.run(_serve(_Server(settings), announce))


async def _serve(server: _Server, announce: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # A second signal does not wait for running answers.
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    serving = asyncio.ensure_future(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.02)
    if server.started:
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    with contextlib.suppress(SystemExit):
        await serving
    return 0 if server.started else 1
