"""What a backend is, and what it is given for one exchange."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent
from dragoman.core.identifiers import NewId
from dragoman.core.messages import Request
from dragoman.core.progress import PromptProgress

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a backend offers."""

    id: str
    context_tokens: int | None = None
    owner: str = "dragoman"
    aliases: tuple[str, ...] = ()
    display_name: str = ""
    """For people, as the server has it; empty: the id."""
    created: int = 0
    """Seconds since 1970, as the server has it; 0: not known."""


class ExchangeObserver(Protocol):
    """Hears what passes between one exchange and its models; what goes through it comes out as it came."""

    def asks(self, backend: "Backend", request: Request) -> None:
        """This backend is asked, a hidden second time too."""

    def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """Its events, before they are guarded."""

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """A model is sent this; what it says, cut as it came."""


@dataclass(frozen=True, slots=True)
class ExchangeContext:
    """What one exchange is given from outside: identity, time, chance."""

    id: str
    created: int
    """Seconds since 1970."""
    new_id: NewId
    leave: Collection[str] = ()
    """What is not to be mended in a call that is read, by the names of docs/guard.md."""
    tap: ExchangeObserver | None = None
    is_partial: bool = False
    """Of an answer only its beginning and end are read, so that a call without a name says nothing about the server."""
    progress: Callable[[PromptProgress], None] | None = None
    """Takes how far the model has read its prompt, from backends that know."""
    large: bool = False
    """The request is so large that what is made of it is made in a thread, where that can be."""
    asked_again: bool = False
    """This is the second generation of the exchange: a backend that re-asks by itself does not."""

    def ask(self, backend: "Backend", request: Request) -> AsyncGenerator[AnyEvent, None]:
        """The backend's events; as `Backend.ask`."""
        if self.tap is None:
            return backend.ask(request, self)
        self.tap.asks(backend, request)
        return self.tap.gave(backend.ask(request, self))

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """What a model that is sent this says; a backend has all of it go through here."""
        return pieces if self.tap is None else self.tap.heard(to, sent, pieces)


class Backend(Protocol):
    """Where replies come from."""

    def models(self) -> Sequence[ServedModel]:
        """What it offers now."""

    async def refresh(self) -> None:
        """Learn anew what it offers, as somebody asks for something else; nothing where that was done just now."""

    def ask(self, request: Request, turn: ExchangeContext) -> AsyncGenerator[AnyEvent, None]:
        """The answer's events, from Start to Finish; closing the generator stops the model.

        Raises: DragomanError: before Start only; later, the stream ends with Failure.
        """

    async def count_tokens(self, request: Request) -> int | None:
        """Tokens of the prompt that the model would be shown; None where that is not known, or not now.

        Raises: DragomanError: the request itself could not be answered either.
        """

    async def start(self) -> None:
        """Make ready; called once before the first `ask`."""

    async def close(self) -> None:
        """End everything that was started."""

    def state(self) -> Mapping[str, object]:
        """Facts for /health: at least `ready` (bool)."""


class PassthroughResponse(Protocol):
    """An answer whose bytes go to the client as the server sent them."""

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Whole events of a stream, or the whole body; closing the generator stops the server.

        Raises: DragomanError: before the first piece only; later, the stream ends with the API's own error.
        """

    def take(self) -> Sequence[AnyEvent]:
        """What has become known of it since the last take: Start, at its end usage, and Finish or Failure."""

    def failed(self, error: DragomanError) -> bytes:
        """What ends the stream where it can go no further."""


@runtime_checkable
class SupportsPassthrough(Protocol):
    """A backend that can do without reading an answer."""

    def relay(self, request: Request, body: bytes, name: str, turn: ExchangeContext) -> PassthroughResponse | None:
        """The answer to this very body, which names the model as its client does; None: `ask` is the only way."""


@runtime_checkable
class SupportsReplay(Protocol):
    """A backend whose answers can be replayed without what stands behind it."""

    def facts(self, model: str) -> Mapping[str, object]:
        """All that a replay has to know of it, as JSON has it; nothing secret."""

    def shown(self, request: Request) -> Request:
        """The request with what it remembers of the model's own words, `Message.written`."""

    def secrets(self) -> Sequence[str]:
        """What is to be shown to nobody."""
