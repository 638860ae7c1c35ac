"""Runs llama.cpp in a supervised child process: its crashes, memory use and busy threads do not affect the gateway.

Requests that are running when the child dies get an error; the child is restarted, with increasing delays if it dies
early. Never more requests are sent to it than it has slots: the others wait here, where they can be cancelled.
"""

import asyncio
import contextlib
import json
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from dragoman.backends.embedded import process as child_process
from dragoman.backends.embedded.process import EngineSettings
from dragoman.core.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    DragomanError,
    QueueFullError,
    RequestError,
    UpstreamError,
    UpstreamTimeoutError,
)

LINE_LIMIT_BYTES: Final = 16 * 1024 * 1024
STDERR_LINES: Final = 20
RESTART_AFTER_S: Final = (0.1, 1.0, 5.0, 30.0)
"""Delays before a restart; a child that ran for a minute resets them."""
LONG_LIFE_S: Final = 60.0
LAST_BREATH_S: Final = 1.0
_MEASURED: Final = "\n".join(f"{n}: {n * n}" for n in range(1, 13))
"""The prompt for measuring the reading speed: some 100 tokens."""


class Progress(NamedTuple):
    """Prompt tokens read so far; the first report precedes any work."""

    total: int
    done: int


class Piece(NamedTuple):
    """More of the reply's text, about one token."""

    text: str


class Done(NamedTuple):
    """The end of the reply."""

    finish: str
    """`stop` or `length`."""
    output_tokens: int
    cached_tokens: int


Output: TypeAlias = Progress | Piece | Done


class Engine:
    """Starts, supervises and ends the child process."""

    def __init__(self, settings: EngineSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._first: asyncio.Future[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._held: dict[int, asyncio.Queue[dict[str, Any] | DragomanError]] = {}
        self._counts: dict[int, asyncio.Future[int]] = {}
        self._metrics: asyncio.Future[str] | None = None
        self._gone = "the embedded engine is not running"
        """Why there is no child process, while there is none."""
        self._closed = False
        self._stopping: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(settings.parallel)
        self._waiting = 0
        self._count = 0
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.restarts = 0

    @property
    def is_ready(self) -> bool:
        """Whether the child process has loaded its weights."""
        return self._ready.is_set() and not self._closed

    @property
    def pid(self) -> int | None:
        """The process id of the child, while there is one."""
        return self._process.pid if self._process else None

    @property
    def active(self) -> int:
        """Requests running in the child process."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot."""
        return self._waiting

    async def start(self) -> None:
        """Starts the child process and waits until it is ready.

        Raises: BackendUnavailableError: it did not start; the message ends with its last output.
        """
        self._first = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep())
        await self._first

    async def close(self) -> None:
        """Ends the child process; running and waiting requests fail."""
        self._closed = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._first is not None:
            self._first.cancel()
        self._lose("the embedded engine has been stopped")
        self._ready.set()  # wakes up the requests that wait for it

    async def metrics(self) -> str:
        """Returns the engine's own counters, as Prometheus text.

        Raises: BackendUnavailableError: the engine is not running.
        """
        if self._metrics is None or self._metrics.done():
            self._metrics = asyncio.get_running_loop().create_future()
            await self._send({"metrics": True})
        return await asyncio.shield(self._metrics)

    async def count(self, text: str) -> int:
        """Returns the number of tokens of a prompt, also while the engine is busy.

        Raises: BackendUnavailableError: the engine is not running, or cannot count.
        """
        if not self.is_ready:
            raise BackendUnavailableError(self._gone, retry_after_s=2)
        self._count += 1
        id, answer = self._count, asyncio.Future[int]()
        self._counts[id] = answer
        try:
            await self._send({"id": id, "count": text})
            return await answer
        finally:
            del self._counts[id]

    async def reading_speed(self) -> float:
        """Measures how many prompt tokens the model reads per second, with a short prompt; 0 if unknown.

        Raises: DragomanError: the engine is not running, or has no free slot.
        """
        loop = asyncio.get_running_loop()
        began_s, total, ended_s = loop.time(), 0, 0.0
        async for output in self.complete({"prompt": _MEASURED, "n_predict": 1, "cache_prompt": False}):
            match output:
                case Progress(tokens, 0):
                    began_s = loop.time()
                    total = tokens
                case Piece() | Done():
                    ended_s = ended_s or loop.time()
        return total / (ended_s - began_s) if ended_s > began_s else 0.0

    async def complete(self, body: Mapping[str, Any], *, again: bool = False) -> AsyncGenerator[Output, None]:
        """Yields the output of one completion; closing the generator stops it within a token.

        With `again` it belongs to a response that has begun, and is not rejected by a full queue.

        Raises: DragomanError: it could not begin, was rejected, or broke off.
        """
        await self._enter(again)
        self._count += 1
        id, inbox = self._count, asyncio.Queue[dict[str, Any] | DragomanError]()
        self._held[id] = inbox
        ended = False
        try:
            await self._send({"id": id, "body": body})
            while not ended:
                message = await self._next(inbox)
                ended = "finish" in message or "error" in message
                for output in _outputs(message, self._settings.context_tokens):
                    yield output
        except DragomanError:
            ended = True  # the child process is gone, or has reported the error itself
            raise
        finally:
            if ended:
                self._leave(id)
            else:
                await self._stop(id, inbox)

    async def _enter(self, again: bool) -> None:
        """Waits for a slot and for the child process to be ready."""
        if not again and self._places.locked() and self._waiting >= self._settings.queue:
            raise QueueFullError(f"all {self._settings.parallel} places and the queue are taken", retry_after_s=2)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            await self._await_ready()
        except BaseException:
            self._places.release()
            raise

    def _leave(self, id: int) -> None:
        del self._held[id]
        self._places.release()

    async def _await_ready(self) -> None:
        try:
            async with asyncio.timeout(self._settings.load_timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise BackendUnavailableError(
                "the embedded engine is not up; see the server's log", retry_after_s=10
            ) from None

    async def _next(self, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]") -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._settings.silence_s):
                message = await inbox.get()
        except TimeoutError:
            self._kill()
            raise UpstreamTimeoutError(
                f"the embedded engine gave no sign of life for {self._settings.silence_s:g} s; it is being restarted"
            ) from None
        if isinstance(message, DragomanError):
            raise message
        return message

    async def _stop(self, id: int, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]") -> None:
        """Cancels the request in the child; its slot is free only when it has stopped, after a token or a prompt batch.

        The caller may itself be cancelled again meanwhile: the slot is released all the same.
        """
        stopping = asyncio.create_task(self._drain(id, inbox))
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)
        await asyncio.shield(stopping)

    async def _drain(self, id: int, inbox: "asyncio.Queue[dict[str, Any] | DragomanError]") -> None:
        try:
            await self._send({"cancel": id})
            while True:
                message = await self._next(inbox)
                if "finish" in message or "error" in message:
                    return
        except DragomanError:
            return  # the child process is gone, and the request with it
        finally:
            self._leave(id)

    async def _send(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise BackendUnavailableError(self._gone, retry_after_s=2)
        with contextlib.suppress(ConnectionError):  # the supervisor reports a dead child
            process.stdin.write(json.dumps(message).encode() + b"\n")
            await process.stdin.drain()

    async def _keep(self) -> None:
        """Runs one child process after the other until cancelled."""
        young = 0
        loop = asyncio.get_running_loop()
        while True:
            born = loop.time()
            try:
                with tempfile.TemporaryDirectory(None, "dragoman-", child_process.folder(), True) as private:
                    error = await self._live(private)
            except OSError as e:
                error = BackendUnavailableError(f"the embedded engine could not be started: {e}")
            if self._first is not None and not self._first.done():
                self._first.set_exception(error)
                return
            self._lose(str(error))
            young = 0 if loop.time() - born > LONG_LIFE_S else young + 1
            pause = RESTART_AFTER_S[min(young, len(RESTART_AFTER_S) - 1)]
            self._say(f"{error}; starting it again in {pause:g} s")
            await asyncio.sleep(pause)
            self.restarts += 1

    def _lose(self, why: str) -> None:
        """Fails all pending requests."""
        self._gone = why
        for inbox in self._held.values():
            inbox.put_nowait(BackendUnavailableError(why, retry_after_s=2))
        for answer in self._counts.values():
            if not answer.done():
                answer.set_exception(BackendUnavailableError(why, retry_after_s=2))
        if self._metrics is not None and not self._metrics.done():
            self._metrics.set_exception(BackendUnavailableError(why))
            self._metrics.exception()  # marks the exception as retrieved, as there may be no waiter

    async def _live(self, private: str) -> BackendUnavailableError:
        """Runs one child process and returns why it ended."""
        self._stderr.clear()
        process = self._process = await child_process.start(LINE_LIMIT_BYTES)
        words = asyncio.create_task(self._listen(process))
        try:
            await self._send(child_process.first_line(self._settings, private))
            await self._read(process)
            self._ready.clear()
            # It is ending by itself; killing it first would lose its exit status.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_BREATH_S):
                    await process.wait()
        finally:
            self._ready.clear()
            self._process = None
            if process.returncode is None:
                self._kill(process)
            await process.wait()
            await asyncio.wait({words}, timeout=1)
        why = child_process.ending(process.returncode, self._stderr, self._settings.memory_mb)
        return BackendUnavailableError(f"the embedded engine ended: {why}", retry_after_s=2)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Dispatches the child's output until it ends."""
        assert process.stdout is not None
        lines = process.stdout
        loading = asyncio.create_task(self._loading(process))
        try:
            while (line := await lines.readline()).endswith(b"\n"):  # the child may die in the middle of a line
                message = json.loads(line)
                if "ready" in message:
                    loading.cancel()
                self._hand_on(message)
        finally:
            loading.cancel()

    def _hand_on(self, message: dict[str, Any]) -> None:
        """Dispatches one message to the request it belongs to."""
        if "ready" in message:
            self._ready.set()
            if self._first is not None and not self._first.done():
                self._first.set_result(None)
        elif "metrics" in message:
            if self._metrics is not None and not self._metrics.done():
                self._metrics.set_result(message["metrics"])
        elif inbox := self._held.get(message["id"]):
            inbox.put_nowait(message)
        elif (answer := self._counts.get(message["id"])) and not answer.done():
            if "tokens" in message:
                answer.set_result(message["tokens"])
            else:
                answer.set_exception(_error(message["error"], self._settings.context_tokens))

    async def _loading(self, process: asyncio.subprocess.Process) -> None:
        """Reports loading progress, and kills a child process that takes too long."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        size_mb = self._settings.path.stat().st_size / 1e6
        self._say(f"loading {self._settings.path.name} ({size_mb:.0f} MB)")
        while (waited := loop.time() - began) < self._settings.load_timeout_s:
            await asyncio.sleep(3)
            self._say(f"still loading after {waited + 3:.0f} s")
        self._stderr.append(f"loading took longer than {self._settings.load_timeout_s:g} s")
        self._kill(process)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self._stderr.append(line.decode("utf-8", "replace").strip()[:500])

    def _kill(self, process: asyncio.subprocess.Process | None = None) -> None:
        process = process or self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _outputs(message: dict[str, Any], context_tokens: int) -> list[Output]:
    """Returns the outputs for one line of the child.

    Raises: DragomanError: the engine rejected the request, or it broke off.
    """
    if "error" in message:
        raise _error(message["error"], context_tokens)
    if "total" in message:
        return [Progress(message["total"], message["done"])]
    outputs: list[Output] = [Piece(message["text"])] if message.get("text") else []
    if "finish" in message:
        usage = message["usage"]
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        outputs.append(Done(message["finish"], usage.get("completion_tokens", 0), cached))
    return outputs


def _error(error: dict[str, Any], context_tokens: int) -> DragomanError:
    if error.get("type") == "exceed_context_size_error":
        return ContextOverflowError(error.get("n_prompt_tokens", 0), error.get("n_ctx", context_tokens))
    if error.get("code") == 400:
        return RequestError(f"the embedded engine refused the request: {error.get('message')}")
    return UpstreamError(f"the embedded engine failed: {error.get('message')}", status=error.get("code"))
