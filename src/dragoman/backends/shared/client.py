"""Backends that forward each call to another process that runs the models, such as `server`."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from dragoman.backends.shared.answer import CallContext
from dragoman.backends.shared.calls import ModelsCalls
from dragoman.backends.shared.models_process import RETRY_AFTER_S, result_of
from dragoman.core.backend import Backend, EventStream, ExchangeContext, PromptProgress, ServedModel, UpstreamFacts
from dragoman.core.errors import BackendUnavailableError, DragomanError
from dragoman.core.events import Failure
from dragoman.core.messages import Request

log = logging.getLogger("dragoman.backends.shared")


@runtime_checkable
class RecordsIds(Protocol):
    """An observer that records the ids that are generated for the exchange."""

    def on_new_id(self, id: str) -> None:
        """Called with each id that the other process generated."""


_PROVIDERS: Final = {"claude_cli": "anthropic", "embedded": "llama_cpp"}
"""Values of `UpstreamFacts.provider` by backend."""


class SharedBackend(Backend):
    """A backend of the process that runs the models."""

    answers_in_turn = True

    def __init__(
        self,
        process: ModelsCalls,
        name: str,
        resolve_model_name: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        """
        Args:
            process: the process that has the backend; several backends may have the same one.
            name: the backend's name there.
            resolve_model_name: returns the backend's own name of a model that it does not list, or None.
        """
        self._process, self._name = process, name
        self.name = name
        self._resolve = resolve_model_name
        self._models: tuple[ServedModel, ...] = ()
        self._models_from: object = None
        """The state that `_models` was read from."""

    def models(self) -> Sequence[ServedModel]:
        """Returns the models, as the process last reported them."""
        listed = self._process.state(self._name).get("models", [])
        if listed is not self._models_from:
            self._models = tuple(msgspec.convert(listed, tuple[ServedModel, ...]))
            self._models_from = listed
        return self._models

    def resolve_model_name(self, name: str) -> str | None:
        """Returns the backend's own name of a model that it does not list, or None."""
        resolved = self._resolve(name)
        return self.other_names().get(name) if resolved is None else resolved

    def other_names(self) -> Mapping[str, str]:
        """Returns names that are accepted but not listed, as the process last reported them."""
        names: Mapping[str, str] = self._process.state(self._name).get("names", {})
        return names

    async def load_model(self, model: str) -> None:
        """Has the backend load a model; see `Backend`.

        Raises: DragomanError: it cannot be loaded, or the process is not there.
        """
        await self._call("load_model", model)

    async def unload_model(self, model: str) -> None:
        """Has the backend unload a model; see `Backend`.

        Raises: DragomanError: it cannot be unloaded, or the process is not there.
        """
        await self._call("unload_model", model)

    async def refresh_local_models(self) -> None:
        """Has the backend look for new files."""
        await self.refresh_models()

    async def refresh_models(self) -> None:
        """Has the backend update its list of models."""
        with contextlib.suppress(BackendUnavailableError):
            self._process.update(self._name, await self._call("refresh_models"))

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of prompt tokens; None if it cannot be determined now.

        Raises: DragomanError: the request is not valid or not supported.
        """
        try:
            count: int | None = await self._call("count_tokens", request)
        except BackendUnavailableError as error:
            log.warning("the prompt was not counted: %s", error)
            return None
        return count

    async def start(self) -> None:
        """Connects to the process.

        Raises: BackendUnavailableError: the process is not there.
        """
        await self._process.start()

    async def close(self) -> None:
        """Closes the connection; the backend runs on for other gateway processes."""
        await self._process.close()

    def health(self) -> Mapping[str, object]:
        """Returns the state of the backend, as the process last reported it; not ready while the process is down."""
        health: dict[str, object] = {"backend": self._name, **self._process.state(self._name).get("health", {})}
        return {**health, "ready": bool(health.get("ready")) and self._process.is_connected}

    def shows_images(self, model: str) -> bool:
        """Returns whether the backend's models see images, as the process last reported; see `Backend`."""
        return bool(self._process.state(self._name).get("images", {}).get(model, True))

    def forwards(self, path: str, model: str) -> bool:
        """Returns whether the model has this API, as the process last reported; see `Backend`."""
        return path in self._process.state(self._name).get("forwarded", {}).get(model, ())

    async def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yields the whole response at once; see `Backend`.

        Args:
            path: The path of the API.
            body: The request body.
            headers: The request headers.
            began: Receives the response headers.

        Raises: DragomanError: the request is not valid, or the process is not there.
        """
        fields, answer = await self._call("forward", path, body, dict(headers))
        began(fields)
        yield answer

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns what a replay needs to know about the backend; see `Backend`.

        Raises: BackendUnavailableError: the process is not there.
        """
        facts: Mapping[str, object] = self._process.call_blocking("describe", self._name, model)
        return facts

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the model's earlier output; unchanged if the process is not there."""
        try:
            request_with_output: Request = self._process.call_blocking("request_as_shown", self._name, request)
        except BackendUnavailableError as error:
            log.warning("a capture has no earlier output of the model: %s", error)
            return request
        return request_with_output

    def secret_values(self) -> Sequence[str]:
        """Returns values that must be redacted from captures; see `Backend`.

        Raises: BackendUnavailableError: the process is not there.
        """
        values: list[str] = self._process.call_blocking("secret_values", self._name)
        return values

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server; see `Backend`."""
        return UpstreamFacts(_PROVIDERS.get(self._name, ""))

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Yields the events of the response; closing the generator stops the model.

        Raises: DragomanError: before Start; see `Backend`.
        """
        fields = CallContext(
            context.id,
            context.created,
            tuple(context.disabled_repairs),
            context.is_partial,
            context.is_large,
            context.reasked,
            context.observer is not None,
            context.progress is not None,
            context.unavailable_tools,
            opening=context.opening,
        )
        frame = ("generate", self._name, request, msgspec.to_builtins(fields))
        async with self._process.call(*frame, large=context.is_large) as connection, _Replayed(context) as observed:
            started = False
            while (frame := await connection.next_frame()) is not None:
                match frame:
                    case ["events", batch]:
                        started = True
                        yield batch
                        connection.acknowledge()
                    case ["done"]:
                        return
                    case ["attempt", tool_mode, format, queue_s, prompt_s]:
                        attempts = context.attempts
                        attempts.tool_mode, attempts.format = tool_mode, format
                        attempts.queue_s, attempts.prompt_s = queue_s, prompt_s
                    case ["error" | "bug", _]:
                        result_of(frame)
                    case _:
                        await observed.on_frame(frame)
                        if frame[0] == "piece":
                            connection.acknowledge()
            error = BackendUnavailableError(self._process.ended, retry_after_s=RETRY_AFTER_S)
            if not started:
                raise error
            yield [Failure(error)]

    async def _call(self, method: str, *args: object) -> Any:
        async with self._process.call(method, self._name, *args) as connection:
            frame = await connection.next_frame()
        if frame is None:
            raise BackendUnavailableError(self._process.ended, retry_after_s=RETRY_AFTER_S)
        return result_of(frame)


class _Replayed:
    """Replays what happens in the other process for the observer and the progress of this exchange."""

    def __init__(self, context: ExchangeContext) -> None:
        self._context = context
        self._observer = context.observer
        observer: object = context.observer
        self._ids = observer if isinstance(observer, RecordsIds) else None
        self._pieces = asyncio.Queue[list[Any]]()
        self._observing: asyncio.Task[None] | None = None
        """Reads the output of the model that is being received, by way of the observer."""

    async def __aenter__(self) -> "_Replayed":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end(["output_left"])

    async def on_frame(self, frame: list[Any]) -> None:
        """Handles a frame of `answer.Reports`."""
        match frame:
            case ["progress", *progress] if self._context.progress is not None:
                self._context.progress(PromptProgress(*progress))
            case ["id", id] if self._ids is not None:
                self._ids.on_new_id(id)
            case ["output", target, sent] if self._observer is not None:
                self._pieces = asyncio.Queue()
                output = self._observer.wrap_model_output(target, sent, self._received())
                self._observing = asyncio.create_task(_drain(output))
            case ["piece", _]:
                self._pieces.put_nowait(frame)
            case ["output_end" | "output_left", *_]:
                await self._end(frame)

    async def _received(self) -> AsyncGenerator[object, None]:
        pieces = self._pieces
        while True:
            match await pieces.get():
                case ["piece", piece]:
                    yield piece
                case ["output_end", None]:
                    return
                case ["output_end", error]:
                    raise error
                case _:
                    raise _LeftError

    async def _end(self, frame: list[Any]) -> None:
        """Ends the output that is being received, if there is one, as the frame says."""
        observing, self._observing = self._observing, None
        if observing is not None:
            self._pieces.put_nowait(frame)
            await asyncio.wait({observing})


class _LeftError(Exception):
    """The backend needs no more of the model's output."""


async def _drain(output: AsyncGenerator[object, None]) -> None:
    with contextlib.suppress(DragomanError, _LeftError):  # the response of the backend reports an error
        async for _ in output:
            pass
