"""Records the stages of one exchange while it happens.

    body → parsed request → each backend call → model output → events → response

It observes the exchange and changes nothing: as its `ExchangeObserver` it sees backend calls and model output, and it
wraps the events for the client and the function that sends the response. `files` turns the record into files; `store`
decides which are kept.
"""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from dragoman.core.backend import Backend, EventStream, ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, VendorBlock, VendorBlockStart
from dragoman.core.identifiers import NewId
from dragoman.core.messages import JsonText, Request, Tool
from dragoman.server.observe.observer import Send, ServerObserver
from dragoman.vendor_tools.executor import RunTool
from dragoman.vendor_tools.tool import ToolRunResult

MAX_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of one record: that of the largest body, and far more than models write. The rest is dropped."""

Timed: TypeAlias = tuple[int, Any]
"""Milliseconds since the request arrived, and what happened then."""
T = TypeVar("T")


class ToolRun(msgspec.Struct):
    """A tool call that the gateway ran."""

    kind: str
    arguments: JsonText
    result: ToolRunResult


@dataclass
class ModelOutput:
    """One request to a model, and its output."""

    target: str
    """The path at the upstream server, or the name of another target."""
    sent: object
    """Bytes, or a value that is written as JSON."""
    ms: int
    pieces: list[Timed] = field(default_factory=list)
    error: DragomanError | None = None
    abandoned: bool = False
    """The output was not read to its end: no more was needed, or the client had disconnected."""


@dataclass
class BackendCall:
    """One call of a backend."""

    backend: Backend
    request: Request
    ms: int
    facts: Mapping[str, object]
    """What the backend reports about itself."""
    outputs: list[ModelOutput] = field(default_factory=list)
    events: list[Timed] = field(default_factory=list)
    error: DragomanError | None = None
    is_read: bool = False
    """The backend yields events; else bytes that are passed through."""

    @property
    def name(self) -> str:
        """The backend's name."""
        return str(self.backend.health().get("backend", ""))


class CaptureRecorder(ServerObserver):
    """Observes one exchange and records it."""

    def __init__(
        self, method: str, path: str, headers: Mapping[str, str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.method, self.path, self.headers = method, path, headers
        self.body = b""
        self.request: Request | None = None
        self.context = ExchangeContext("", 0, str)
        """The context of the exchange, without this observer."""
        self.ids: list[str] = []
        """The ids that were generated for the exchange."""
        self.backend_calls: list[BackendCall] = []
        self.events: list[Timed] = []
        """The events for the client."""
        self.tool_runs: list[Timed] = []
        """What tools that the gateway ran returned, as `ToolRun`."""
        self.reply: list[Timed] = []
        """The ASGI messages of the response."""
        self.is_cut = False
        """The record exceeded `MAX_BYTES`."""
        self._now_s, self._began_s, self._bytes = now_s, now_s(), 0

    @property
    def ms(self) -> int:
        """Milliseconds since the request arrived."""
        return round((self._now_s() - self._began_s) * 1000)

    @property
    def size_bytes(self) -> int:
        """Approximate size of the record."""
        return len(self.body) + self._bytes + 1000

    def on_body(self, body: bytes) -> None:
        """See `ServerObserver`, also for the methods below."""
        self.body = body

    def on_request(self, request: Request) -> None:
        """Records the parsed request."""
        self.request = request

    def wrap_context(self, context: ExchangeContext) -> ExchangeContext:
        """Returns the context with this observer, and records the ids that it generates."""
        self.context = context
        return msgspec.structs.replace(context, new_id=self._noted(context.new_id), observer=self)

    def _noted(self, new_id: NewId) -> NewId:
        def noted() -> str:
            self.ids.append(id := new_id())
            return id

        return noted

    def on_new_id(self, id: str) -> None:
        """Records an id that the process of a shared backend generated (`backends.shared.client.RecordsIds`)."""
        self.ids.append(id)

    def on_backend_call(self, backend: Backend, request: Request) -> None:
        """See `ExchangeObserver`."""
        as_shown = backend.request_as_shown(request)
        self.backend_calls.append(BackendCall(backend, as_shown, self.ms, _facts(backend, request)))

    async def wrap_events(self, events: EventStream) -> EventStream:
        """See `ExchangeObserver`."""
        call = self.backend_calls[-1]
        call.is_read = True
        try:
            async with aclosing(events):
                async for batch in events:
                    for event in batch:
                        self._keep(call.events, event, _event_size(event))
                    yield batch
        except DragomanError as error:
            call.error = error
            raise

    async def wrap_model_output(
        self, target: str, sent: object, pieces: AsyncGenerator[T, None]
    ) -> AsyncGenerator[T, None]:
        """See `ExchangeObserver`."""
        output = self._begin_output(target, sent)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    self._keep(output.pieces, piece, len(piece) if isinstance(piece, bytes) else 100)
                    yield piece
            output.abandoned = False
        except DragomanError as error:
            output.error, output.abandoned = error, False
            raise

    def _begin_output(self, target: str, sent: object) -> ModelOutput:
        call, output = self.backend_calls[-1], ModelOutput(target, sent, self.ms, abandoned=True)
        if not call.outputs:  # the backend has chosen its mode by now
            call.facts = _facts(call.backend, call.request)
        call.outputs.append(output)
        return output

    async def run_tool(self, kind: str, arguments: JsonText, run: RunTool) -> ToolRunResult:
        """See `ToolRunObserver`."""
        result = captured = await run()
        if result.tools:  # their definitions are in the request
            captured = replace(result, text="", tools=tuple(Tool(tool.name) for tool in result.tools))
        self._keep(self.tool_runs, ToolRun(kind, arguments, captured), len(arguments) + _result_size(captured))
        return result

    async def wrap_client_events(self, events: EventStream) -> EventStream:
        """Records the events for the client."""
        async with aclosing(events):
            async for batch in events:
                for event in batch:
                    self._keep(self.events, event, _event_size(event))
                yield batch

    def wrap_send(self, send: Send) -> Send:
        """Records the messages of the response."""

        async def send_recorded(message: MutableMapping[str, Any]) -> None:
            self._keep(self.reply, dict(message), len(message.get("body", b"")) + 100)
            await send(message)

        return send_recorded

    def _keep(self, where: list[Timed], what: object, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_BYTES:
            self.is_cut = True
        else:
            where.append((self.ms, what))


def _event_size(event: AnyEvent) -> int:
    """Returns the approximate size of an event; only blocks of a vendor, such as search results, are large."""
    return 100 + (len(event.json) if isinstance(event, VendorBlock | VendorBlockStart) else 0)


def _result_size(result: ToolRunResult) -> int:
    texts = [result.text, *(hit.text for hit in result.hits), *(image.source.data for image in result.images)]
    if result.page is not None:
        texts.append(result.page.text)
    if result.output is not None:
        texts += [result.output.stdout, result.output.stderr]
    return 100 + sum(map(len, texts))


def _facts(backend: Backend, request: Request) -> Mapping[str, object]:
    """Returns the facts of the backend; if it cannot report them, as when a template file is gone, the error."""
    try:
        return backend.describe(request.model)
    except DragomanError as error:
        return {"describe_error": error.message}
