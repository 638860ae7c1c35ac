"""Answers one call of another process with a backend of this one, as frames (`server` has the list of calls)."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

import msgspec

from dragoman.core.backend import Backend, EventStream, ExchangeContext, ExchangeObserver, OpeningText, PromptProgress
from dragoman.core.errors import DragomanError
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Request

log = logging.getLogger("dragoman.backends.shared")

T = TypeVar("T")

FORWARDED_PATHS: Final = ("/v1/embeddings", "/v1/rerank")
"""Untranslated APIs that models of this machine may have."""


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
    sends_text: bool = False
    """The model's text is sent too, so that another process can continue it."""
    opening: OpeningText | None = None
    """See `ExchangeContext`."""


class Link(Protocol):
    """Sends the frames of one call to the other process."""

    def send(self, *frame: object) -> None:
        """Sends a frame."""

    async def send_counted(self, *frame: object) -> None:
        """Sends a frame once the other process has taken most of the earlier ones."""


async def answer(
    backends: Mapping[str, Backend],
    call: Sequence[Any],
    link: Link,
    on_change: Callable[[], None] = lambda: None,
) -> None:
    """Answers a call; its last frame is the result or an error.

    Args:
        backends: the backends, which must have been started, by their names.
        call: the method, the name of the backend, and the arguments.
        link: receives the frames.
        on_change: called when the state of a backend may have changed.
    """
    method, name, *args = call
    try:
        if method == "generate":
            request, fields = args
            await _generate(backends[name], request, fields, link, on_change)
        else:
            link.send("result", await CALLS[method](backends[name], *args))
    except DragomanError as error:
        link.send("error", error)
    except ConnectionError:
        raise
    except Exception as bug:
        log.exception("bug: the call of %s failed", method)
        link.send("bug", f"{type(bug).__name__} in the process that runs the models; its log has the traceback")


async def _generate(
    backend: Backend, request: Request, fields: Mapping[str, Any], link: Link, on_change: Callable[[], None]
) -> None:
    values = msgspec.convert(fields, CallContext)
    reports = Reports(link)
    observer: ExchangeObserver | None = TextReports(link) if values.sends_text else None
    context = ExchangeContext(
        values.id,
        values.created,
        reports.new_id if values.observed else random_id,
        values.disabled_repairs,
        reports if values.observed else observer,
        values.is_partial,
        reports.on_progress if values.progress else None,
        values.is_large,
        values.reasked,
        values.unavailable_tools,
        opening=values.opening,
    )
    try:
        async with aclosing(backend.generate(request, context)) as batches:
            has_started = False
            async for batch in batches:
                if not has_started:
                    on_change()
                    has_started = True
                    link.send("attempt", *_attempt(context))
                await link.send_counted("events", batch)
    finally:
        on_change()
    link.send("attempt", *_attempt(context))
    link.send("done")


class Reports:
    """Sends what happens during a response to the observer of the exchange, which is in the client's process.

    ["progress", *PromptProgress]    of prompt evaluation       ["id", id]           an id that was generated
    ["output", target, sent]         a request to the model     ["piece", piece]     a piece of its output
    ["output_end", error]            its end; error: None, or why it broke off
    ["output_left"]                  the backend needs no more of it
    """

    def __init__(self, link: Link) -> None:
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


class TextReports:
    """Sends the text of the model, before the events that it becomes.

    ["text", text]   a token      ["text", None]   the model is re-asked: its text cannot be continued
    """

    def __init__(self, link: Link) -> None:
        self._link, self._calls = link, 0

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """Does nothing: the client's process has called the backend."""

    def wrap_events(self, events: EventStream) -> EventStream:
        """Returns the events."""
        return events

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """Yields the model's output, and sends the text of each piece first."""
        self._calls += 1
        if self._calls > 1:
            self._link.send("text", None)
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(text := getattr(piece, "text", None), str):
                    self._link.send("text", text)
                yield piece


def _attempt(context: ExchangeContext) -> tuple[object, ...]:
    attempts = context.attempts
    return attempts.tool_mode, attempts.format, attempts.queue_s, attempts.prompt_s


def state_of(backend: Backend) -> dict[str, object]:
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
    return state_of(backend)


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


CALLS: Final[Mapping[str, Callable[..., Awaitable[object]]]] = {
    "count_tokens": _count_tokens,
    "forward": _forward,
    "refresh_models": _refresh_models,
    "load_model": _load_model,
    "unload_model": _unload_model,
    "describe": _describe,
    "request_as_shown": _request_as_shown,
    "secret_values": _secret_values,
}
