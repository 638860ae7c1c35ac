"""Interface of backends, and the context that each exchange passes to them."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from dragoman.core.errors import DragomanError
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a backend offers."""

    id: str
    context_tokens: int | None = None
    owner: str = "dragoman"
    aliases: tuple[str, ...] = ()
    display_name: str = ""
    """Display name from the server; empty: use the id."""
    created: int = 0
    """Seconds since 1970, from the server; 0: not known."""


class ExchangeObserver(Protocol):
    """Observes the traffic between one exchange and its models; everything passes through unchanged."""

    def asks(self, backend: "Backend", request: Request) -> None:
        """Called before each request to a backend, re-asks included."""

    def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """Returns the backend's events unchanged; sees them before the guard does."""

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Returns the model's output unchanged.

        Args:
            to: Where the request was sent.
            sent: The request, as sent.
            pieces: The model's output, split as it arrived.
        """


@dataclass(frozen=True, slots=True)
class ExchangeContext:
    """Values that one exchange receives from outside: id, time, id generator and observer."""

    id: str
    created: int
    """Seconds since 1970."""
    new_id: NewId
    leave: Collection[str] = ()
    """Names of the repairs (docs/guard.md) that must not be applied to calls."""
    tap: ExchangeObserver | None = None
    is_partial: bool = False
    """Only the start and the end of the response are parsed, so an unnamed call is not evidence against the server."""
    progress: Callable[[PromptProgress], None] | None = None
    """Receives the progress of prompt evaluation, from backends that report it."""
    large: bool = False
    """The request is so large that work on it is done in a thread where possible."""
    reasked: bool = False
    """This is the second generation of the exchange: the backend must not re-ask by itself."""

    def ask(self, backend: "Backend", request: Request) -> AsyncGenerator[AnyEvent, None]:
        """Returns the events of `Backend.ask`, observed."""
        if self.tap is None:
            return backend.ask(request, self)
        self.tap.asks(backend, request)
        return self.tap.gave(backend.ask(request, self))

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Returns the model's output unchanged, observed; backends must pass all of it through here."""
        return pieces if self.tap is None else self.tap.heard(to, sent, pieces)


class Backend(Protocol):
    """Source of model responses: an upstream server, an embedded model or a command-line program."""

    def models(self) -> Sequence[ServedModel]:
        """Returns the models that are offered now."""

    async def refresh(self) -> None:
        """Updates the list of models, after a request for an unknown model; does nothing if it was updated just now."""

    def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        """Generates the events of one response, from Start to Finish; closing the generator stops the model.

        Raises:
            DragomanError: Before Start only; a later error ends the stream with a Failure event.
        """

    async def count_tokens(self, request: Request) -> int | None:
        """Returns the number of prompt tokens of the request; None if it cannot be determined now.

        Raises:
            DragomanError: The request itself is not valid or not supported.
        """

    async def start(self) -> None:
        """Prepares the backend; called once before the first request."""

    async def close(self) -> None:
        """Stops everything that the backend started."""

    def state(self) -> Mapping[str, object]:
        """Returns status fields for /health: at least `ready` (bool)."""


class PassthroughResponse(Protocol):
    """A response whose bytes are forwarded to the client as the server sent them."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields whole SSE events, or the whole body; closing the generator cancels the upstream request.

        Raises:
            DragomanError: Before the first bytes only; a later error ends the stream with the API's own error event.
        """

    def take(self) -> Sequence[AnyEvent]:
        """Returns the events known since the last call: Start, and at the end usage and Finish or Failure."""

    def failed(self, error: DragomanError) -> bytes:
        """Returns the bytes that end the stream after an error."""


@runtime_checkable
class SupportsPassthrough(Protocol):
    """A backend that can forward responses without parsing them."""

    def relay(self, request: Request, body: bytes, name: str, turn: ExchangeContext) -> PassthroughResponse | None:
        """Returns the response to this request body; None: it must be generated with `ask`.

        Args:
            body: The client's body, byte for byte.
            name: The model's name as the client wrote it.
        """


@runtime_checkable
class SupportsReplay(Protocol):
    """A backend whose responses can be replayed without its server or model."""

    def facts(self, model: str) -> Mapping[str, object]:
        """Returns everything that a replay needs to know about the backend, as JSON values; no secrets."""

    def shown(self, request: Request) -> Request:
        """Returns the request with the remembered text of the model in `Message.written`."""

    def secrets(self) -> Sequence[str]:
        """Returns values, such as API keys, that must be redacted from captures."""
