"""Interface of backends, and the context that each exchange passes to them."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from dragoman.core.client import ANONYMOUS, ClientFacts
from dragoman.core.errors import DragomanError, UnsupportedError, failure_reason, quote
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import NewId
from dragoman.core.messages import Request


class PromptProgress(NamedTuple):
    """Progress of prompt evaluation, in tokens."""

    done: int
    """Tokens evaluated so far, those from the prompt cache included."""
    total: int
    cut: str = ""
    """Name of what was trimmed from the request to shorten evaluation; empty: nothing."""
    waits_for: str = ""
    """What the request waits for before its prompt is evaluated, such as `loading qwen3-4b`; empty: nothing."""


T = TypeVar("T")
EventStream: TypeAlias = AsyncGenerator[Sequence[AnyEvent], None]
"""Batches of events; those of one batch arrived together."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a backend offers."""

    id: str
    context_window: int | None = None
    owner: str = "dragoman"
    aliases: tuple[str, ...] = ()
    display_name: str = ""
    """Display name from the server; empty: use the id."""
    created: int = 0
    """Seconds since 1970, from the server; 0: not known."""


class UpstreamFacts(NamedTuple):
    """What spans tell about the model server of a request."""

    provider: str = ""
    """Type of the server, such as `vllm`; empty: not known."""
    address: str = ""
    """Its host name; empty: it is this process, or a child process."""
    port: int = 0
    tool_mode: str = ""
    """How the model is offered tools."""


class ExchangeObserver(Protocol):
    """Observes the traffic between one exchange and its models; everything passes through unchanged."""

    def on_backend_call(self, backend: "Backend", request: Request) -> None:
        """Called before each request to a backend, re-asks included."""

    def wrap_events(self, events: EventStream) -> EventStream:
        """Returns the backend's events unchanged; sees them before the guard does."""

    def wrap_model_output(self, target: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Returns the model's output unchanged.

        Args:
            target: Where the request is sent: a URL path, or the name of another target.
            sent: The request, as sent.
            pieces: The model's output, split as it arrived.
        """


class ExchangeSpans(Protocol):
    """Records the spans of one exchange; what it wraps passes through unchanged (`tracing`)."""

    def generate(self, backend: "Backend", request: Request, context: "ExchangeContext") -> EventStream:
        """Returns the events of `ExchangeContext.generate`."""

    def retry(self, error: DragomanError, delay_s: float) -> None:
        """The request failed with this error, and is sent again to the same backend after so many seconds."""

    def upstream_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the headers of the request that is sent next, with those of the trace; a retry changes them."""

    def wrap_passthrough(
        self, backend: "Backend", request: Request, response: "PassthroughResponse", context: "ExchangeContext"
    ) -> "PassthroughResponse":
        """Returns the response of a request that is passed through.

        Args:
            backend: The backend that is asked.
            request: The parsed request.
            response: Its response.
            context: The exchange.
        """

    async def forward(
        self, operation: str, backend: "Backend", model: str, send: Callable[[], Awaitable[None]]
    ) -> None:
        """Sends a request of an API that is not translated.

        Args:
            operation: What the API does, such as `embeddings`.
            backend: The backend that is asked.
            model: The backend's own name of the model.
            send: Sends the request, and forwards the response.
        """

    async def run_tool(self, name: str, call_id: str, run: Callable[[], Awaitable[T]]) -> T:
        """Runs a tool and returns its result, whose `error` is not empty if the tool failed."""


class Attempts:
    """The requests to backends for one response: the first, retries, failover and re-asks."""

    __slots__ = (
        "count",
        "failed",
        "format",
        "insists",
        "model",
        "not_asked",
        "placement",
        "prompt_s",
        "queue_s",
        "repeats",
        "replicas",
        "spans",
        "tool_mode",
        "upstream",
        "waited_s",
    )

    def __init__(self) -> None:
        self.count = 0
        self.upstream = ""
        """Name of the backend that was asked last: the one that answers, once there is an answer."""
        self.model = ""
        """That backend's own name of the model."""
        self.failed: list[tuple[str, str]] = []
        """Backend and reason of each attempt that failed, in order."""
        self.repeats: list[tuple[str, str]] = []
        """Backend whose attempt was not the last, and what followed: `retry`, `failover` or `reask`."""
        self.waited_s: float | None = None
        """Seconds in which servers were waited for, with queues and retries, until the first byte of each response.

        None: no server was waited for.
        """
        self.not_asked = 0
        """How many servers were not asked, as they get no requests for a while; they come last."""
        self.insists = False
        """Whether such a server is asked nevertheless, as no other one could answer."""
        self.tool_mode = ""
        """How tools reach the model, as the backend names it, such as `native`; empty: not known."""
        self.format = ""
        """The format of the model's text that is parsed; empty: none."""
        self.placement = ""
        """Why this replica of the model was chosen (`affinity`); empty: there was no choice."""
        self.queue_s: float | None = None
        """Seconds in which the backend's queue, or the loading of its model, was waited for; None: not known."""
        self.prompt_s: float | None = None
        """Seconds in which the model read the prompt; None: not known."""
        self.spans: ExchangeSpans | None = None
        """Records the spans of the exchange; None: it is not traced."""
        self.replicas: Sequence[tuple[Backend, Request]] = ()
        """The backends that may continue the text of one that fails, each with a request under its own model name."""

    def answering(self) -> Callable[[], None]:
        """Returns a function that makes who was asked last the one that answers again, after others were asked."""
        last = self.upstream, self.model, self.tool_mode, self.format, self.replicas

        def restore() -> None:
            self.upstream, self.model, self.tool_mode, self.format, self.replicas = last

        return restore

    def begin(self, upstream: str, model: str) -> None:
        """A backend is asked.

        Args:
            upstream: Its name.
            model: Its own name of the model.
        """
        if self.count:
            self.repeats.append((self.upstream, "retry" if upstream == self.upstream else "failover"))
        self.upstream, self.model = upstream, model
        self.count += 1

    def wait(self, seconds: float) -> None:
        """A server was waited for, from the request to the first byte of its response or to its error."""
        self.waited_s = (self.waited_s or 0.0) + seconds

    def queue(self, seconds: float) -> None:
        """The backend's queue, or the loading of its model, was waited for."""
        self.queue_s = (self.queue_s or 0.0) + seconds

    def fail(self, error: BaseException) -> None:
        """The last attempt failed."""
        self.failed.append((self.upstream, failure_reason(error)))

    def retry(self, error: DragomanError, delay_s: float = 0.0) -> None:
        """The last attempt failed, and is retried at the same backend after so many seconds."""
        self.fail(error)
        self.repeats.append((self.upstream, "retry"))
        self.count += 1
        if self.spans is not None:
            self.spans.retry(error, delay_s)

    def reask(self, reason: str) -> None:
        """The model is re-asked, because of this warning about its first response."""
        self.failed.append((self.upstream, reason))
        self.repeats.append((self.upstream, "reask"))
        self.count += 1


class OpeningText(NamedTuple):
    """What a model wrote of a response before its replica failed."""

    text: str
    tokens: int


class ExchangeContext(msgspec.Struct, frozen=True):
    """Values that one exchange receives from outside: id, time, id generator and observer."""

    id: str
    created: int
    """Seconds since 1970."""
    new_id: NewId
    disabled_repairs: Collection[str] = ()
    """Names of the repairs (docs/guard.md) that must not be applied to calls."""
    observer: ExchangeObserver | None = None
    is_partial: bool = False
    """Only the start and the end of the response are parsed, so an unnamed call is not evidence against the server."""
    progress: Callable[[PromptProgress], None] | None = None
    """Receives the progress of prompt evaluation, from backends that report it."""
    is_large: bool = False
    """The request is so large that work on it is done in a thread where possible."""
    reasked: bool = False
    """This is the second generation of the exchange: the backend must not re-ask by itself."""
    unavailable_tools: tuple[str, ...] = ()
    """Tools that the model is not offered, and whose calls in its text are calls all the same: they get an error."""
    attempts: Attempts = msgspec.field(default_factory=Attempts)
    """Which backends were asked."""
    client: ClientFacts = ANONYMOUS
    """Who sent the request."""
    reserve: Callable[[int], Awaitable[bool]] | None = None
    """Reserves so many further responses within the client's limits; returns whether it may have them. None: it may."""
    opening: OpeningText | None = None
    """Text that the model continues; its events come again, then those of the rest. Only for the embedded engine."""

    def generate(self, backend: "Backend", request: Request) -> EventStream:
        """Returns the events of `Backend.generate`, observed and traced."""
        spans = self.attempts.spans
        return self.generate_untraced(backend, request) if spans is None else spans.generate(backend, request, self)

    def generate_untraced(self, backend: "Backend", request: Request) -> EventStream:
        """Returns the events of `Backend.generate`, observed."""
        if self.observer is None:
            return backend.generate(request, self)
        self.observer.on_backend_call(backend, request)
        return self.observer.wrap_events(backend.generate(request, self))

    def wrap_model_output(self, target: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Returns the model's output unchanged, observed; backends must pass all of it through here."""
        return pieces if self.observer is None else self.observer.wrap_model_output(target, sent, pieces)


class Backend(ABC):
    """Source of model responses: an upstream server, an embedded model or a command-line program.

    A backend must list its models, generate and report its health. Everything else has a default: nothing to start, no
    token count, no passthrough, no replay.
    """

    name: str = ""
    """The name in headers, logs and metrics; empty: `backend` of `health`."""
    answers_in_turn: bool = False
    """Several responses to one prompt cost least one after the other, because its cache has the prompt by then."""

    @abstractmethod
    def models(self) -> Sequence[ServedModel]:
        """Returns the models that are offered now."""

    @abstractmethod
    def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        """Generates the events of one response, from Start to Finish; closing the generator stops the model.

        Yields:
            Events that arrived together, at least one. They are sent to the client in one write.

        Raises:
            DragomanError: Before Start only; a later error ends the stream with a Failure event.
        """

    @abstractmethod
    def health(self) -> Mapping[str, object]:
        """Returns status fields for /health: at least `backend` (its name) and `ready` (bool)."""

    async def start(self) -> None:
        """Prepares the backend; called once before the first request."""

    async def close(self) -> None:
        """Stops everything that the backend started."""

    async def refresh_models(self) -> None:
        """Updates the list of models, after a request for an unknown model; does nothing if it was updated just now."""

    async def refresh_local_models(self) -> None:
        """Updates the list of models that are files of this machine; called before clients are sent the list."""

    def other_names(self) -> Mapping[str, str]:
        """Returns names of models that are accepted but not listed, each with the backend's own name of the model."""
        return {}

    def resolve_model_name(self, name: str) -> str | None:
        """Returns the backend's own name of a model that it serves but cannot list; None: it does not serve it."""
        return self.other_names().get(name)

    async def load_model(self, model: str) -> None:
        """Loads a model into memory, and returns when it is ready.

        Raises:
            DragomanError: The model is loaded already, does not fit, or is not loaded by this backend.
        """
        raise UnsupportedError(f"model {quote(model)} is not loaded by this gateway, but by its server", "model")

    async def unload_model(self, model: str) -> None:
        """Removes a model from memory after its running requests.

        Raises:
            DragomanError: The model is not loaded, must stay, or is not loaded by this backend.
        """
        raise UnsupportedError(f"model {quote(model)} is not unloaded by this gateway, but by its server", "model")

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of prompt tokens of the request; None if it cannot be determined now.

        Raises:
            DragomanError: The request itself is not valid or not supported.
        """
        return None

    def passthrough(
        self, request: Request, body: bytes, name: str, context: ExchangeContext
    ) -> "PassthroughResponse | None":
        """Returns the response to this body, to be forwarded unparsed; None: it must be generated with `generate`.

        Args:
            request: The parsed body.
            body: The client's body, byte for byte.
            name: The model's name as the client wrote it.
            context: The exchange that the response is part of.
        """
        return None

    def continue_text(self, request: Request, text: str, context: ExchangeContext) -> EventStream:
        """Yields the rest of a text that a model has begun, with the text as the end of the prompt.

        Args:
            request: The request, under this backend's own name of the model; `max_tokens` is what is left of it.
            text: The model's text so far, verbatim.
            context: The exchange; `attempts.format` names the format of the text.

        Yields:
            TextDelta, Notice, UsageUpdate of this request alone, and Finish at the end.

        Raises:
            DragomanError: At any time; `UnsupportedError` if the backend does not render prompts itself.
        """
        raise UnsupportedError(f"model {quote(request.model)} cannot continue a text", "model")

    def forwards(self, path: str, model: str) -> bool:
        """Returns whether `forward` answers at this path of an API that is not translated, such as /v1/embeddings."""
        return False

    def forward(
        self, path: str, body: bytes, headers: Mapping[str, str], began: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of the response to an untranslated request; called only if `forwards` the path.

        Args:
            path: The path of the API.
            body: The request body.
            headers: The request headers.
            began: Receives the response headers, before the first bytes.

        Raises:
            DragomanError: The request is not valid, the server cannot be reached, or responds with an error.
        """
        raise UnsupportedError(
            f"this model has no API at {path}; use a model of an upstream server that has it", "model"
        )

    def compacts(self, request: Request) -> bool:
        """Returns whether the server compacts this conversation itself."""
        return False

    def edits_context(self, request: Request) -> bool:
        """Returns whether the server gets the conversation in its own API, and edits it itself."""
        return False

    def runs_vendor_tools(self) -> bool | None:
        """Returns whether the server runs the tools of its API's vendor, for requests in its own API; None: not
        known.
        """
        return False

    def shows_images(self, model: str) -> bool:
        """Returns False if this model is never shown the images of a request."""
        return True

    def describe(self, model: str) -> Mapping[str, object]:
        """Returns everything that a replay needs to know about the backend, as JSON values; no secrets."""
        return {}

    def request_as_shown(self, request: Request) -> Request:
        """Returns the request with the remembered text of the model in `Message.verbatim_text`."""
        return request

    def upstream_facts(self, model: str) -> UpstreamFacts:
        """Returns what spans tell about the server of this model."""
        return UpstreamFacts()

    def secret_values(self) -> Sequence[str]:
        """Returns values, such as API keys, that must be redacted from captures."""
        return ()


class PassthroughResponse(Protocol):
    """A response whose bytes are forwarded to the client as the server sent them."""

    def stream(self) -> AsyncGenerator[bytes, None]:
        """Yields whole SSE events, or the whole body; closing the generator cancels the upstream request.

        Raises:
            DragomanError: Before the first bytes only; a later error ends the stream with the API's own error event.
        """

    def drain_events(self) -> Sequence[AnyEvent]:
        """Returns the events known since the last call: Start, and at the end usage and Finish or Failure."""

    def error_event(self, error: DragomanError) -> bytes:
        """Returns the bytes that end the stream after an error."""
