"""Runs llama.cpp in a supervised child process: its crashes, memory use and busy threads do not affect the gateway.

Requests that are running when the child dies get an error; the child is restarted, with increasing delays if it dies
early. Never more requests are sent to it than it has slots: the others wait here, where they can be cancelled.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final

from dragoman.backends.concurrency_limit import ConcurrencyLimiter
from dragoman.backends.embedded import start_worker
from dragoman.backends.embedded.admitted_request import AdmittedRequest, HeldSlot
from dragoman.backends.embedded.engine import llama_server
from dragoman.backends.embedded.engine.hardware import Hardware
from dragoman.backends.embedded.engine.load_log import LoadFacts
from dragoman.backends.embedded.engine.queries import EngineQueries
from dragoman.backends.embedded.engine.worker_log import WorkerLog
from dragoman.backends.embedded.engine_output import Done, Output, Progress, TokenText, read_error
from dragoman.backends.embedded.prefixes.warm import WarmPrefixes, open_prefixes
from dragoman.backends.embedded.start_worker import EngineSettings
from dragoman.core.errors import (
    BackendUnavailableError,
    DragomanError,
    UpstreamTimeoutError,
)

LINE_LIMIT_BYTES: Final = 16 * 1024 * 1024
RESTART_DELAYS_S: Final = (0.1, 1.0, 5.0, 30.0)
"""Delays before a restart; a child that ran for a minute resets them."""
STABLE_AFTER_S: Final = 60.0
EXIT_GRACE_S: Final = 1.0
_SPEED_PROMPT: Final = "\n".join(f"{n}: {n * n}" for n in range(1, 13))
"""The prompt for measuring the reading speed: some 100 tokens."""


class LlamaProcess:
    """Starts, supervises and ends the child process."""

    def __init__(self, settings: EngineSettings, report: Callable[[str], None]) -> None:
        self._settings = settings
        self._report = report
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._started: asyncio.Future[None] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._inboxes: dict[int, asyncio.Queue[dict[str, Any] | DragomanError]] = {}
        self._queries = EngineQueries(self._send, settings.context_window)
        self._down_reason = "the embedded engine is not running"
        """Why there is no child process, while there is none."""
        self._closed = False
        self._stopping: set[asyncio.Task[None]] = set()
        self._limiter = ConcurrencyLimiter("the embedded engine", settings.max_concurrency, settings.max_queue)
        self._last_id = 0
        self._log = WorkerLog()
        self._pid: int | None = None
        self._hardware_report: asyncio.Task[None] | None = None
        self.hardware: Hardware | None = None
        """What the model runs on, as the engine reported when it was last loaded."""
        self.restarts = 0
        self.prefixes: WarmPrefixes | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the child process has loaded its weights."""
        return self._ready.is_set() and not self._closed

    @property
    def pid(self) -> int | None:
        """The id of the process that holds the model, while there is one."""
        return self._pid or (self._process.pid if self._process else None)

    @property
    def load_facts(self) -> LoadFacts:
        """What the engine reported while it loaded the model."""
        return self._log.engine.facts

    @property
    def active(self) -> int:
        """Requests that hold a slot."""
        return self._limiter.active

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._limiter.waiting

    async def start(self) -> None:
        """Starts the child process and waits until it is ready.

        Raises: BackendUnavailableError: it did not start; the message ends with its last output.
        """
        self.prefixes = await asyncio.to_thread(open_prefixes, self._settings)
        self._started = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise())
        await self._started
        if self.prefixes is not None:
            async with self._admit(admitted=True) as request:
                await self.prefixes.restore_recent(request)

    async def close(self) -> None:
        """Ends the child process; running and waiting requests fail."""
        self._closed = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
        if self._started is not None:
            self._started.cancel()
        if self.prefixes is not None:
            await self.prefixes.close()
        self._fail_pending("the embedded engine has been stopped")
        self._ready.set()  # wakes up the requests that wait for it

    async def metrics(self) -> str:
        """Returns the engine's own counters, as Prometheus text.

        Raises: BackendUnavailableError: the engine is not running.
        """
        return await self._queries.metrics()

    async def count(self, text: str) -> int:
        """Returns the number of tokens of a prompt, also while the engine is busy.

        Raises: BackendUnavailableError: the engine is not running, or cannot count.
        """
        if not self.is_ready:
            raise BackendUnavailableError(self._down_reason, retry_after_s=2)
        return await self._queries.count(text)

    async def reading_speed(self) -> float:
        """Measures how many prompt tokens the model reads per second, with a short prompt; 0 if unknown.

        Raises: DragomanError: the engine is not running, or has no free slot.
        """
        loop = asyncio.get_running_loop()
        began_s, total, ended_s = loop.time(), 0, 0.0
        async for output in self.complete({"prompt": _SPEED_PROMPT, "n_predict": 1, "cache_prompt": False}):
            match output:
                case Progress(tokens, 0):
                    began_s = loop.time()
                    total = tokens
                case TokenText() | Done():
                    ended_s = ended_s or loop.time()
        return total / (ended_s - began_s) if ended_s > began_s else 0.0

    async def complete(
        self, body: Mapping[str, Any], *, admitted: bool = False, slot: HeldSlot | None = None
    ) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion; closing the generator stops it within a token.

        Args:
            body: the request, as llama.cpp's `/completion` accepts it; `prefix_chars` is the length of the prompt's
                constant prefix, which is restored or saved.
            admitted: whether it belongs to a response that has begun, which a full queue must not reject.
            slot: what holds the slot of the response, from its first completion on; None: only this one needs it.

        Yields:
            The prompt's progress, then text, then one `Done`.

        Raises:
            QueueFullError: all slots and the queue are taken.
            DragomanError: it could not begin, was rejected, or broke off.
        """
        sent = {key: value for key, value in body.items() if key != "prefix_chars"}
        async with self._admit(admitted=admitted, shared=slot) as request:
            if self.prefixes is None or "media" in sent:
                completion = request.complete(sent)
            else:
                completion = self.prefixes.complete(request, sent, body.get("prefix_chars", 0))
            async with contextlib.aclosing(completion) as outputs:
                async for output in outputs:
                    yield output

    async def post(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of the engine's response to a request that is not a completion.

        Args:
            path: `/v1/embeddings` or `/v1/rerank`.
            body: the request, as llama.cpp's server accepts it at this path.

        Raises:
            QueueFullError: all slots and the queue are taken.
            DragomanError: the engine rejected the request, or broke off.
        """
        async with (
            self._admit(admitted=False) as request,
            contextlib.aclosing(request.messages({"post": path, "body": body})) as messages,
        ):
            async for message in messages:
                if "error" in message:
                    raise read_error(message["error"], self._settings.context_window)
                if "piece" in message:
                    yield message["piece"].encode()

    @contextlib.asynccontextmanager
    async def _admit(self, *, admitted: bool, shared: HeldSlot | None = None) -> AsyncGenerator[AdmittedRequest, None]:
        """Waits for a free slot, unless the response has one, and holds it in the block."""
        async with HeldSlot() as own:
            slot = own if shared is None else shared
            await slot.take(self._limiter.acquire(may_exceed_queue=admitted))
            await self._await_ready()
            yield AdmittedRequest(partial(self._messages, slot), self.count, self._settings.context_window)

    async def _messages(self, slot: HeldSlot, sent: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Runs one request in the child. If it is cancelled, `slot` is kept until the child has stopped."""
        self._last_id += 1
        id, inbox = self._last_id, asyncio.Queue[dict[str, Any] | DragomanError]()
        self._inboxes[id] = inbox
        ended = False
        try:
            await self._send({"id": id, **sent})
            while not ended:
                message = await self._next_message(inbox)
                ended = "finish" in message or "error" in message
                yield message
        except DragomanError:
            ended = True  # the child process is gone, or has reported the error itself
            raise
        finally:
            if ended:
                del self._inboxes[id]
            else:
                await self._stop(id, inbox, slot.pop_all())

    async def _await_ready(self) -> None:
        try:
            async with asyncio.timeout(self._settings.load_timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise BackendUnavailableError(
                "the embedded engine is not up; see the server's log", retry_after_s=10
            ) from None

    async def _next_message(self, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]") -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._settings.stall_timeout_s):
                message = await inbox.get()
        except TimeoutError:
            self._kill()
            raise UpstreamTimeoutError(
                f"the embedded engine gave no sign of life for {self._settings.stall_timeout_s:g} s; "
                "it is being restarted"
            ) from None
        if isinstance(message, DragomanError):
            raise message
        return message

    async def _stop(
        self, id: int, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]", slot: contextlib.AsyncExitStack
    ) -> None:
        """Cancels the request in the child; its slot is free only when it has stopped, after a token or a prompt batch.

        The caller may itself be cancelled again meanwhile: the slot is released all the same.
        """
        stopping = asyncio.create_task(self._drain(id, inbox, slot))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        await asyncio.shield(stopping)

    async def _drain(
        self, id: int, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]", slot: contextlib.AsyncExitStack
    ) -> None:
        try:
            await self._send({"cancel": id})
            while True:
                message = await self._next_message(inbox)
                if "finish" in message or "error" in message:
                    return
        except DragomanError:
            return  # the child process is gone, and the request with it
        finally:
            del self._inboxes[id]
            await slot.aclose()

    async def _send(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise BackendUnavailableError(self._down_reason, retry_after_s=2)
        with contextlib.suppress(ConnectionError):  # the supervisor reports a dead child
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()

    async def _supervise(self) -> None:
        """Runs one child process after the other until cancelled."""
        early_exits = 0
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            try:
                with tempfile.TemporaryDirectory(None, "dragoman-", start_worker.private_dir_parent(), True) as private:
                    error = await self._run_worker(private)
            except OSError as e:
                error = BackendUnavailableError(f"the embedded engine could not be started: {e}")
            if self._started is not None and not self._started.done():
                self._started.set_exception(error)
                return
            self._fail_pending(str(error))
            early_exits = 0 if loop.time() - started_s > STABLE_AFTER_S else early_exits + 1
            pause = RESTART_DELAYS_S[min(early_exits, len(RESTART_DELAYS_S) - 1)]
            self._report(f"{error}; starting it again in {pause:g} s")
            await asyncio.sleep(pause)
            self.restarts += 1

    def _fail_pending(self, why: str) -> None:
        """Fails all pending requests."""
        self._down_reason = why
        for inbox in self._inboxes.values():
            inbox.put_nowait(BackendUnavailableError(why, retry_after_s=2))
        self._queries.fail(why)

    async def _run_worker(self, private: str) -> BackendUnavailableError:
        """Runs one child process and returns why it ended."""
        log = self._log = WorkerLog()
        command = llama_server.command(self._settings) if self._settings.program else []
        process = self._process = await start_worker.start(LINE_LIMIT_BYTES)
        stderr_reader = asyncio.create_task(log.read(process.stderr))
        try:
            await self._send(start_worker.settings_message(self._settings, private, command))
            await self._read(process)
            self._ready.clear()
            # It is ending by itself; killing it first would lose its exit status.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_GRACE_S):
                    await process.wait()
        finally:
            self._ready.clear()
            self._process = self._pid = None
            if self._hardware_report is not None:
                self._hardware_report.cancel()
            if process.returncode is None:
                start_worker.kill(process)
            await process.wait()
            await asyncio.wait({stderr_reader}, timeout=1)
        why = start_worker.describe_exit(process.returncode, log.engine.last, self._settings.memory_limit_mb)
        return BackendUnavailableError(f"the embedded engine ended: {why}", retry_after_s=2)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Dispatches the child's output until it ends."""
        assert process.stdout is not None
        lines = process.stdout
        loading = asyncio.create_task(self._watch_loading(process))
        try:
            while (line := await lines.readline()).endswith(b"\n"):  # the child may die in the middle of a line
                message = json.loads(line)
                if "ready" in message:
                    loading.cancel()
                self._dispatch(message)
        finally:
            loading.cancel()

    def _dispatch(self, message: dict[str, Any]) -> None:
        """Dispatches one message to the request it belongs to."""
        if "ready" in message:
            self._pid = message["pid"]
            if self.prefixes is not None:
                self.prefixes.reset()
            self._ready.set()
            self._hardware_report = asyncio.create_task(self._tell_hardware(self._log))
            if self._started is not None and not self._started.done():
                self._started.set_result(None)
        elif inbox := self._inboxes.get(message.get("id", 0)):
            inbox.put_nowait(message)
        else:
            self._queries.dispatch(message)

    async def _watch_loading(self, process: asyncio.subprocess.Process) -> None:
        """Reports loading progress, and kills a child process that takes too long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        size_mb = self._settings.path.stat().st_size / 1e6
        self._report(f"loading {self._settings.path.name} ({size_mb:.0f} MB)")
        while (waited := loop.time() - began) < self._settings.load_timeout_s:
            await asyncio.sleep(3)
            self._report(f"still loading after {waited + 3:.0f} s")
        self._log.engine.last.append(f"loading took longer than {self._settings.load_timeout_s:g} s")
        self._kill(process)

    async def _tell_hardware(self, log: WorkerLog) -> None:
        self.hardware = await log.hardware(self._settings)
        self._report(f"{self._settings.path.stem}: {self.hardware}")

    def _kill(self, process: asyncio.subprocess.Process | None = None) -> None:
        process = process or self._process
        if process is not None and process.returncode is None:
            start_worker.kill(process)
