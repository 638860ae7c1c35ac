"""Answers the requests of other processes with the backends of this one, over a Unix domain socket.

A connection is one call, which its first frame names; closing the connection cancels the call.

    ["generate", backend, request, context]   → ["events", batch]*, ["done"]; also the frames of `_Reports`, and
                                                ["attempt", tool mode, format, queue_s, prompt_s]
    ["watch"]                                 → ["state", {backend: {"models", "names", "health",
                                                "images", "forwarded"}}] now and after each change, of
                                                which those by a response arrive before its first event
    ["count_tokens", backend, request] and the other calls of `_CALLS` → ["result", value]

Instead of the last frame of each, ["error", error] or ["bug", text] may follow. The client acknowledges the frames of
a response, ["ack", count]. At most `WINDOW` frames are sent that are not acknowledged, so a slow client of the gateway
stops the model here too.
"""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dragoman.backends.shared import codec
from dragoman.core.backend import Backend, EventStream, ExchangeContext, PromptProgress
from dragoman.core.errors import DragomanError
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Request

log = logging.getLogger("dragoman.backends.shared")

T = TypeVar("T")

WINDOW: Final = 64
"""Frames of one response that are sent before the client acknowledges them."""
FORWARDED_PATHS: Final = ("/v1/embeddings", "/v1/rerank")
"""Untranslated APIs that models of this machine may have."""
STATE_INTERVAL_S: Final = 0.2
"""Time between two looks at the state of the backends."""
FIRST_FRAME_S: Final = 30.0
"""Time for the first frame of a connection to arrive."""


class CallContext(msgspec.Struct, frozen=True):
    """The values of an `ExchangeContext` that go to another process."""

    id: str
    created: int
    disabled_repairs: tuple[str, ...] = ()
    is_partial: bool = False
    is_large: bool = False
    reasked: bool = False
    observed: bool = False
    """The model's output is sent too, for an observer."""
    progress: bool = False
    """The progress of prompt evaluation is sent too."""
    unavailable_tools: tuple[str, ...] = ()


class BackendServer:
    """Serves backends, which must have been started, by their names."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self._backends = dict(backends)
        self._running: set[asyncio.Task[None]] = set()
        self._watching: dict[_Link, object] = {}
        """The processes that watch the state, and what each was last sent."""
        self._server: asyncio.Server | None = None

    async def listen(self, path: Path) -> None:
        """Begins to accept connections at this path; a socket that is left there is replaced.

        Raises: OSError: the socket cannot be created.
        """
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
        self._server = await asyncio.start_unix_server(self._accept, path)
        os.chmod(path, 0o600)

    async def close(self) -> None:
        """Cancels all calls."""
        if self._server is not None:
            self._server.close()
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with asyncio.timeout(FIRST_FRAME_S):
                first = await codec.read_frame(reader)
            if first is not None:
                acks = _Acks()
                await _until_closed(self._answer(first, _Link(writer, acks)), acks.receive(reader))
        except (ConnectionError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # `close`; asyncio would log the cancellation of a connection's task
        finally:
            self._running.discard(task)
            writer.close()

    async def _answer(self, first: list[Any], link: "_Link") -> None:
        method, *args = first
        try:
            if method == "watch":
                await self._watch(link)
            elif method == "generate":
                await self._generate(link, *args)
            else:
                backend, *args = args
                link.send("result", await _CALLS[method](self._backends[backend], *args))
        except DragomanError as error:
            link.send("error", error)
        except ConnectionError:
            raise
        except Exception as bug:
            log.exception("bug: the call of %s failed", method)
            link.send("bug", f"{type(bug).__name__} in the process that runs the models; its log has the traceback")
        await link.drain()

    async def _generate(self, link: "_Link", name: str, request: Request, fields: Mapping[str, Any]) -> None:
        values = msgspec.convert(fields, CallContext)
        reports = _Reports(link)
        context = ExchangeContext(
            values.id,
            values.created,
            reports.new_id if values.observed else random_id,
            values.disabled_repairs,
            reports if values.observed else None,
            values.is_partial,
            reports.on_progress if values.progress else None,
            values.is_large,
            values.reasked,
            values.unavailable_tools,
        )
        try:
            async with aclosing(self._backends[name].generate(request, context)) as batches:
                has_started = False
                async for batch in batches:
                    if not has_started:
                        self._publish_state()
                        has_started = True
                        link.send("attempt", *_attempt(context))
                    await link.send_counted("events", batch)
        finally:
            self._publish_state()
        link.send("attempt", *_attempt(context))
        link.send("done")

    async def _watch(self, link: "_Link") -> None:
        self._watching[link] = None
        try:
            while True:
                self._publish_state()
                await asyncio.sleep(STATE_INTERVAL_S)
        finally:
            del self._watching[link]

    def _publish_state(self) -> None:
        """Sends the state of the backends to all that watch it, if it has changed."""
        state = {name: _state(backend) for name, backend in self._backends.items()}
        for link, sent in self._watching.items():
            if state != sent:
                link.send("state", state)
                self._watching[link] = state


async def _until_closed(answer: Coroutine[Any, Any, None], closed: Coroutine[Any, Any, None]) -> None:
    """Runs the answer until it ends, or the client closes the connection, which cancels it."""
    tasks = asyncio.ensure_future(answer), asyncio.ensure_future(closed)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not tasks[0].cancelled():
        tasks[0].result()


class _Acks:
    """Counts the frames that the client has not acknowledged yet."""

    def __init__(self) -> None:
        self._open = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def receive(self, reader: asyncio.StreamReader) -> None:
        """Reads acknowledgements until the client closes the connection."""
        while (frame := await codec.read_frame(reader)) is not None:
            self._open -= frame[1]
            self._has_room.set()

    async def wait(self) -> None:
        """Waits until another frame may be sent, and counts it."""
        while self._open >= WINDOW:
            self._has_room.clear()
            await self._has_room.wait()
        self._open += 1


class _Link:
    """Sends the frames of one call."""

    def __init__(self, writer: asyncio.StreamWriter, acks: _Acks) -> None:
        self._writer, self._acks = writer, acks

    def send(self, *frame: object) -> None:
        """Sends a frame that is not counted."""
        self._writer.write(codec.encode(frame))

    async def send_counted(self, *frame: object) -> None:
        """Sends a frame once the client has taken most of the earlier ones."""
        await self._acks.wait()
        self.send(*frame)
        await self.drain()

    async def drain(self) -> None:
        """Waits until the socket accepts more."""
        await self._writer.drain()


class _Reports:
    """Sends what happens during a response to the observer of the exchange, which is in the client's process.

    ["progress", *PromptProgress]    of prompt evaluation       ["id", id]           an id that was generated
    ["output", target, sent]         a request to the model     ["piece", piece]     a piece of its output
    ["output_end", error]            its end; error: None, or why it broke off
    ["output_left"]                  the backend needs no more of it
    """

    def __init__(self, link: _Link) -> None:
        self._link = link

    def new_id(self) -> str:
        """Returns a new id, and reports it."""
        id = random_id()
        self._link.send("id", id)
        return id

    def on_progress(self, progress: PromptProgress) -> None:
        """Reports the progress of prompt evaluation."""
        self._link.send("progress", *progress)

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """Does nothing: the client's process has called the backend."""

    def wrap_events(self, events: EventStream) -> EventStream:
        """Returns the events: they are observed in the client's process."""
        return events

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Yields the model's output, and sends each piece first."""
        self._link.send("output", target, sent)
        end: tuple[object, ...] = ("output_left",)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    await self._link.send_counted("piece", piece)
                    yield piece
            end = ("output_end", None)
        except DragomanError as error:
            end = ("output_end", error)
            raise
        finally:
            self._link.send(*end)


def _attempt(context: ExchangeContext) -> tuple[object, ...]:
    attempts = context.attempts
    return attempts.tool_mode, attempts.format, attempts.queue_s, attempts.prompt_s


def _state(backend: Backend) -> dict[str, object]:
    """Returns what clients know of a backend without asking: its models and their other names, its health, which models
    see images, and the untranslated APIs of each.
    """
    models = backend.models()
    return {
        "models": [msgspec.to_builtins(model) for model in models],
        "names": dict(backend.other_names()),
        "health": dict(backend.health()),
        "images": {model.id: backend.shows_images(model.id) for model in models},
        "forwarded": {m.id: [path for path in FORWARDED_PATHS if backend.forwards(path, m.id)] for m in models},
    }


async def _count_tokens(backend: Backend, request: Request) -> int | None:
    return await backend.count_tokens(request)


async def _forward(backend: Backend, path: str, body: bytes, headers: Mapping[str, str]) -> list[object]:
    """Returns the headers and the body of the response, which is not streamed."""
    fields: dict[str, str] = {}
    async with aclosing(backend.forward(path, body, headers, fields.update)) as pieces:
        return [fields, b"".join([piece async for piece in pieces])]


async def _refresh_models(backend: Backend) -> dict[str, object]:
    await backend.refresh_models()
    return _state(backend)


async def _load_model(backend: Backend, model: str) -> None:
    await backend.load_model(model)


async def _unload_model(backend: Backend, model: str) -> None:
    await backend.unload_model(model)


async def _describe(backend: Backend, model: str) -> Mapping[str, object]:
    return backend.describe(model)


async def _request_as_shown(backend: Backend, request: Request) -> Request:
    return backend.request_as_shown(request)


async def _secret_values(backend: Backend) -> list[str]:
    return list(backend.secret_values())


_CALLS: Final[Mapping[str, Callable[..., Awaitable[object]]]] = {
    "count_tokens": _count_tokens,
    "forward": _forward,
    "refresh_models": _refresh_models,
    "load_model": _load_model,
    "unload_model": _unload_model,
    "describe": _describe,
    "request_as_shown": _request_as_shown,
    "secret_values": _secret_values,
}
