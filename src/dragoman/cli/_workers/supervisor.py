"""Starts the processes of `dragoman serve --workers N`, restarts those that end or hang, and stops them in order.

The supervisor binds the sockets and keeps them open, so connections that wait in the queue of a worker that dies are
not lost: another worker accepts them until the new one is ready. It serves no requests itself. The processes end when
their standard input closes, so none outlives it.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dragoman import compose
from dragoman.backends.embedded import start_worker
from dragoman.backends.shared import codec
from dragoman.cli._workers.plan import LOG_LOCK, Plan
from dragoman.cli._workers.reload import WorkersReload
from dragoman.cli._workers.whole_lines import WholeLines
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.server.ports import bind_for_workers, url_of
from dragoman.server.reload.control import ConfigSource
from dragoman.server.run import draining_for, on_signals, waiting_for

log = logging.getLogger("dragoman.serve")

RESTART_DELAYS_S: Final = (0.1, 1.0, 5.0, 30.0)
"""Delays before a restart; a process that ran for a minute resets them."""
STABLE_AFTER_S: Final = 60.0
PINGS: Final = 5
"""Times in a row that a process does not respond before it is killed: a supervisor that was stopped itself, or waited
for the processor, finds only one ping without a response."""
STOP_S: Final = 10.0
"""Time for a process to end once it breaks off its responses; then it is killed."""
_MODELS: Final = "dragoman.cli._workers.models_worker"
_GATEWAY: Final = "dragoman.cli._workers.gateway_worker"


def run(
    plan: Plan,
    source: ConfigSource,
    announce: Callable[[str, Sequence[str]], None],
    report: Callable[[str], None],
    *logs: Any,
) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit status.

    Args:
        plan: the settings; the folder and the sockets are added here.
        source: where the settings come from, for a reload.
        announce: receives the URL and the models once all processes are ready.
        report: receives lines for the user.
        logs: handlers of the log, whose lines go to standard error.

    Raises:
        ConfigError: the address cannot be listened on, or a process found a wrong setting.
        DragomanError: a backend did not start.
    """
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(contextlib.closing(each)) for each in bind_for_workers(plan.config.server)]
        folder = opened.enter_context(_private_folder())
        opened.enter_context(contextlib.redirect_stderr(lines := WholeLines(2, folder / LOG_LOCK)))
        for handler in logs:
            opened.callback(handler.setStream, handler.setStream(lines))
        if not plan.config.response_store.seal_key:
            compose.seal_key(folder)  # created once, for all
        plan = replace(plan, shared_dir=str(folder))
        return asyncio.run(Supervisor(plan, source, sockets, announce, report).run())


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dragoman-", dir=start_worker.private_dir_parent()))
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)  # systemd-tmpfiles deletes old files except in locked folders
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


class _Slot:
    """One process at a time, and its successors."""

    def __init__(self, name: str, module: str, plan: Plan) -> None:
        self.name, self.module, self.plan = name, module, plan
        self.config = plan.config
        """The settings of the current process; those of `plan` are for the next one."""
        self.process: asyncio.subprocess.Process | None = None
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the first process is ready, or has failed."""
        self.models: Sequence[str] = ()
        self.is_ready = False
        self.running: int | None = None
        """The responses that ran when the process began to drain; None: it does not drain."""
        self.sent: object = None
        """The last order to listen."""
        self.unanswered_pings = 0
        self.error: DragomanError | None = None
        """Why the process ended, as it reported itself."""

    @property
    def is_up(self) -> bool:
        """Whether the process serves, and is not to end."""
        return self.is_ready and self.running is None

    def send(self, *frame: object) -> None:
        """Sends a frame to the process, if there is one."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(codec.encode(frame))

    def kill(self) -> None:
        """Kills the process."""
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def describe_exit(self) -> str:
        """Returns how the process ended."""
        code = self.process.returncode if self.process else None
        return self.error.message if self.error else start_worker.describe_exit(code, (), 0)


class Supervisor:
    """All processes of one gateway."""

    def __init__(
        self,
        plan: Plan,
        source: ConfigSource,
        sockets: Sequence[socket.socket],
        announce: Callable[[str, Sequence[str]], None],
        report: Callable[[str], None],
    ) -> None:
        """
        Args:
            plan: the settings of all processes.
            source: where the settings come from, for a reload.
            sockets: the bound sockets; closed when the processes are to end.
            announce: receives the URL and the models once all processes are ready.
            report: receives lines for the user.
        """
        self._plan, self._sockets, self._announce, self._report = plan, sockets, announce, report
        self._workers: list[_Slot] = []
        self._reload = WorkersReload(self._workers, source, plan.config, self._on_signal)
        self._models: _Slot | None = None
        self._stopping = asyncio.Event()
        self._keeping: dict[_Slot, asyncio.Task[None]] = {}
        self._is_announced = False
        self._is_unready = False
        """Whether the first signal has arrived, and the workers report at `/ready` that they will stop."""
        self._is_counted = False
        """The responses that the shutdown waits for were reported."""

    async def run(self) -> int:
        """Runs the processes until a signal, and returns the exit status.

        Raises: DragomanError: one of them did not start.
        """
        on_signals(asyncio.get_running_loop(), self._on_signal, self._reload.on_sighup)
        reloading: asyncio.Task[None] | None = None
        try:
            if self._plan.has_models:
                self._models = self._begin(_Slot("the models process", _MODELS, self._plan))
                await self._until_ready([self._models])
            if not self._stopping.is_set():
                descriptors = tuple(each.fileno() for each in self._sockets)
                for number in range(self._plan.config.server.workers):
                    plan = replace(self._plan, sockets=descriptors, number=number)
                    self._workers.append(self._begin(_Slot(f"worker {number + 1}", _GATEWAY, plan)))
                await self._until_ready(self._workers)
            if not self._stopping.is_set():
                self._is_announced = True
                self._announce(url_of(self._sockets[0]), self._workers[0].models)
                self._assign_sockets()
                reloading = asyncio.create_task(self._reload.run())
            await self._stopping.wait()
            await self._end(self._workers, self._plan.config.server.graceful_shutdown_s + STOP_S)
        finally:
            self._stopping.set()
            if reloading is not None:
                reloading.cancel()
            await self._kill(self._workers)
            if self._models is not None:
                self._models.send("stop")
                await self._end([self._models], STOP_S)
                await self._kill([self._models])
        return 0

    def _begin(self, slot: _Slot) -> _Slot:
        self._keeping[slot] = asyncio.create_task(self._keep(slot))
        return slot

    async def _until_ready(self, slots: Sequence[_Slot]) -> None:
        """Waits until all are ready, or the supervisor is to stop.

        Raises: DragomanError: one of them did not start.
        """
        stopping: asyncio.Future[Any] = asyncio.create_task(self._stopping.wait())
        starting: set[asyncio.Future[Any]] = {slot.first_ready for slot in slots}
        try:
            while starting and not stopping.done():
                done, _ = await asyncio.wait({*starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                for each in done & starting:
                    each.result()
                starting -= done
        finally:
            stopping.cancel()

    async def _keep(self, slot: _Slot) -> None:
        """Runs one process after the other until the supervisor stops."""
        loop, early_exits = asyncio.get_running_loop(), 0
        while not self._stopping.is_set():
            began_s = loop.time()
            await self._run_process(slot)
            if self._stopping.is_set():
                return
            why = slot.describe_exit()
            if not slot.first_ready.done():
                slot.first_ready.set_exception(slot.error or BackendUnavailableError(f"{slot.name} ended: {why}"))
                slot.first_ready.exception()  # if several fail, the first one is reported
                return
            self._assign_sockets()
            early_exits = 1 if loop.time() - began_s > STABLE_AFTER_S else early_exits + 1
            pause_s = RESTART_DELAYS_S[min(early_exits, len(RESTART_DELAYS_S)) - 1]
            pid = slot.process.pid if slot.process else 0
            log.warning("%s (process %d) ended: %s; starting it again in %g s", slot.name, pid, why, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _run_process(self, slot: _Slot) -> None:
        """Runs one process to its end."""
        slot.error, slot.sent, slot.running, slot.unanswered_pings = None, None, None, 0
        slot.config = slot.plan.config
        try:
            process = slot.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", slot.module),  # -P: the current folder may contain other modules
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=slot.plan.sockets,
                start_new_session=True,  # Ctrl-C is not sent to it
            )
        except OSError as error:
            slot.error = BackendUnavailableError(f"it could not be started: {error}")
            return
        assert process.stdin is not None
        assert process.stdout is not None
        watching = asyncio.create_task(self._watch(slot))
        try:
            plan = msgspec.json.encode(slot.plan)
            process.stdin.write(len(plan).to_bytes(codec.LENGTH_BYTES) + plan)
            if self._stopping.is_set():
                slot.send("stop")
            while (frame := await codec.read_frame(process.stdout)) is not None:
                self._on_frame(slot, frame)
            process.stdin.close()
            await process.wait()
        finally:
            watching.cancel()
            slot.is_ready = False
            self._reload.on_exit(slot)
            self._count_running()

    async def _watch(self, slot: _Slot) -> None:
        """Kills a process whose event loop does not respond any more."""
        timeout_s = self._plan.config.server.worker_timeout_s
        while timeout_s:
            await asyncio.sleep(timeout_s / PINGS)
            if slot.unanswered_pings >= PINGS:
                setting = f"{timeout_s:g} s (setting server.worker_timeout_s)"
                slot.error = BackendUnavailableError(f"it did not respond for {setting} and was killed")
                slot.kill()
                return
            if slot.is_ready:
                slot.unanswered_pings += 1
                slot.send("ping")

    def _on_frame(self, slot: _Slot, frame: Sequence[Any]) -> None:
        match frame:
            case ["pong"]:
                slot.unanswered_pings = 0
                return
            case ["ready", models]:
                slot.is_ready, slot.models = True, models
                if self._is_unready:
                    slot.send("unready")
                if not slot.first_ready.done():
                    slot.first_ready.set_result(None)
            case ["failed", error]:
                slot.error = error
            case ["draining", running]:
                slot.running = running
                self._count_running()
        if slot in self._workers:
            self._reload.on_frame(slot, frame)
        self._assign_sockets()

    def _assign_sockets(self) -> None:
        """Lets the workers that run accept the connections of those that do not."""
        if not self._is_announced or self._stopping.is_set() or len(self._sockets) == 1:
            return
        up = [slot for slot in self._workers if slot.is_up]
        down = [slot.plan.number for slot in self._workers if slot not in up]
        for index, slot in enumerate(up):
            order = ("listen", [slot.plan.number, *down[index :: len(up)]])
            if order != slot.sent:
                slot.send(*order)
                slot.sent = order

    def _on_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, signal.SIGINT):  # the terminal was closed
            self._report(f"{signal.Signals(number).name}: stopping")
        delay_s = self._plan.config.server.drain_delay_s
        if self._stopping.is_set() or self._is_unready:
            self._stop("stop")
        elif delay_s and self._is_announced:
            self._is_unready = True
            self._report(draining_for(delay_s))
            for slot in self._workers:
                slot.send("unready")
            asyncio.get_running_loop().call_later(delay_s, self._stop, "drain")
        else:
            self._stop("drain")

    def _stop(self, order: str) -> None:
        """Stops accepting connections, and sends this order to the workers."""
        if self._stopping.is_set() and order == "drain":  # the delay ends after a second signal
            return
        self._stopping.set()
        for listener in self._sockets:
            listener.close()
        for slot in self._workers:
            slot.send(order if slot.is_ready else "stop")
        self._count_running()  # workers that got the signal themselves may have reported before

    def _count_running(self) -> None:
        """Reports, once, how many responses the shutdown waits for."""
        live = [slot for slot in self._workers if slot.is_ready]
        if not self._stopping.is_set() or self._is_counted or any(slot.running is None for slot in live):
            return
        self._is_counted = True
        running = sum(slot.running or 0 for slot in live)
        if text := waiting_for(running, self._plan.config.server.graceful_shutdown_s):
            self._report(text)

    async def _end(self, slots: Sequence[_Slot], within_s: float) -> None:
        """Waits until the processes have ended; those that take longer are killed."""
        if slots:
            await asyncio.wait([self._keeping[slot] for slot in slots], timeout=within_s)
            await self._kill(slots)

    async def _kill(self, slots: Sequence[_Slot]) -> None:
        for slot in slots:
            slot.kill()
        if slots:
            await asyncio.wait([self._keeping[slot] for slot in slots])
