"""The process that runs the models of this machine for all gateway processes. `supervisor` starts it.

It ends when the supervisor tells it to, not by signals: service managers send those to all processes at once, and the
models are needed until the last response has ended.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman import compose
from dragoman.backends.shared.server import BackendServer
from dragoman.cli._workers.child import Child
from dragoman.closing import close_all
from dragoman.server.run import runner


def _serve(child: Child) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with runner() as r:
        r.run(_run(child))
    return 0


async def _run(child: Child) -> None:
    plan, stop = child.plan, asyncio.Event()

    def on_frame(frame: Sequence[Any]) -> None:
        stop.set()

    child.attach(on_frame)
    backends = compose.local_backends(plan.config, plan.embedded, child.report, lambda config: Path(plan.weights))
    server = BackendServer(backends)

    async def start() -> None:
        for backend in backends.values():
            await backend.start()
        await server.listen(plan.folder / compose.MODELS_SOCKET)
        child.send("ready", [])

    stopping, starting = asyncio.ensure_future(stop.wait()), asyncio.ensure_future(start())
    try:
        await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
    finally:
        starting.cancel()
        stopping.cancel()
        await asyncio.wait({starting, stopping})
        try:
            await server.close()
        finally:
            await close_all(*(backend.close for backend in backends.values()))


if __name__ == "__main__":
    sys.exit(Child().run(_serve))
