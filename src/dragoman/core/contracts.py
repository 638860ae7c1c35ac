"""The shapes that plug into one another: a format, a dialect, a backend.

`core` knows no instance of them. Formats and dialects are records, found by listing their folders; a
backend is an object with a life.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import msgspec

from dragoman.constraints.grammar import Piece
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Warning
from dragoman.core.identifiers import ANY
from dragoman.core.messages import Reply, Request, Tool, ToolCall, ToolChoice, ToolResult
from dragoman.core.model import Model as Model
from dragoman.core.progress import Progress
from dragoman.parsing.reasoning_draft import Drafts
from dragoman.schema.argument_types import Schema
from dragoman.text.scanner import Leaf, Scanner
from dragoman.wire.passing import Passing

if TYPE_CHECKING:
    from dragoman.parsing.markup import Markup

T = TypeVar("T")

NewId: TypeAlias = Callable[[], str]
"""Gives a fresh random id of `[A-Za-z0-9]{24}`: randomness is passed in, so that tests are stable."""


class CallSink(Drafts, Protocol):
    """Where a format's reader puts what it has read; it numbers calls and checks names."""

    @property
    def lenient(self) -> bool:
        """Calls without the format's own tags count too, where they name an offered tool."""

    @property
    def calls(self) -> int:
        """Calls begun so far."""

    @property
    def is_over(self) -> bool:
        """Whatever still comes is made up; see `over`."""

    def text(self, text: str) -> None:
        """More of the answer: the model's own text, ending where the scanner stands."""

    def reasoning(self, text: str) -> None:
        """More of the thoughts; as `text`."""

    def resolve(self, name: str) -> str | None:
        """The offered tool that is meant, or None."""

    def needs_arguments(self, name: str) -> bool:
        """Whether a call of this offered tool without arguments cannot be meant."""

    def schema(self, name: str) -> Schema:
        """What the arguments of this offered tool may be."""

    def start(self, name: str, id: str = "") -> None:
        """A call begins; `name` is one that `resolve` gave, `id` the model's own or empty."""

    def arguments(self, text: str) -> None:
        """More of the open call's arguments."""

    def end(self, id: str = "") -> None:
        """The open call is whole; `id` is the model's own where it came after the arguments."""

    def incomplete(self, raw: str) -> None:
        """The open call is broken."""

    def listed(self, open: bool) -> None:
        """A list of calls begins, or has come to its end: one cut off within is, with atomic delivery, none at all."""

    def over(self, code: str, message: str, raw: str = "") -> None:
        """Whatever the model writes from here on is made up (a tool result of its own): end generation."""

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Something was not as the format has it."""

    def note(self, about: Literal["format", "problem"], text: str) -> None:
        """For those who ask how a reply was read: whose reader takes what comes, or why this is no call."""


class _Muted:
    """Passes nothing on."""

    def arguments(self, text: str) -> None:
        """Drop it."""

    def warn(self, code: str, message: str, raw: str = "") -> None:
        """Drop it."""


MUTED: Final = cast(CallSink, _Muted())
"""For the arguments of a call that is none: they are read, as they may quote a whole call, which must not be run."""


UNREADABLE: Final = "schema"
"""Told of a schema that is none, or that Python cannot read."""


class HeldCall(NamedTuple):
    """A call of one tool, as a constrained decoder must write it."""

    before: str
    body: Piece
    """The arguments."""
    behind: str
    relaxed: tuple[str, ...] = ()
    """The words of the tool's schema that the body does not hold the model to; `UNREADABLE` for all of it."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a constrained decoder must write, for one format and set of tools.

    One of `calls`, and again with `separator` between where `many`, all of it in `section`. Where the choice is
    free, only from `opener` on, with which any call begins.
    """

    opener: str
    section: tuple[str, str]
    calls: tuple[HeldCall, ...]
    separator: str
    many: bool
    free: bool = False
    """The choice is free."""


ReadReply: TypeAlias = Callable[[Scanner, CallSink], Leaf[None]]
"""Reads one reply."""
ReadCall: TypeAlias = Callable[[Scanner, CallSink, str], Leaf[bool]]
"""Reads from behind an opener, which it is given; whether a whole call came of it."""


Notation: TypeAlias = Literal["JSON", "tagged", "notation", "Python"]
"""How arguments stand in a call: as one JSON object, in which any string may stand; each between tags; in a notation
of the format's own; as Python's keyword arguments."""


@dataclass(frozen=True, slots=True, repr=False)
class Format:
    """How a family of models writes tool calls, and wants tools and results written to it."""

    name: str
    models: str
    """Who writes it, for people."""
    source: str
    """The vendor's page or template that states the format, with its date."""
    read: ReadReply
    markers: tuple[str, ...]
    """Strings that mean something in this format, to be neutralised in anything the model did not write."""
    write_tools: Callable[[Sequence[Tool], ToolChoice], str]
    """The system text that states the tools, the protocol and the policy; "" for no tools or choice "none"."""
    write_call: Callable[[ToolCall], str]
    write_result: Callable[[ToolResult, str], str]
    """A result as the model is shown it; second, the name of the tool that was called."""
    constrain: Callable[[Sequence[Tool], ToolChoice], Constraint | None]
    """What to hold the model to under this choice; None where it may write what it likes."""
    section: tuple[str, str] = ("", "")
    """What stands around all calls of a reply."""
    separator: str = "\n"
    """What stands between two calls."""
    first: str = ""
    """What says of a call that it is the first of its reply, ` index="1"`; the others have their own number there."""
    calls: Mapping[str, ReadCall] = field(default_factory=dict)
    """What opens a call, or the section of all, anywhere in a reply; for a reader that does not know the format."""
    thoughts: Mapping[str, str] = field(default_factory=dict)
    """What opens thoughts, what closes them."""
    markup: "Markup | None" = None
    """All markers of a reply, where it has this shape."""
    thought: tuple[str, str] = ("", "")
    """What stands around thoughts where the model is shown its own; empty where it has no markup for them."""
    thinks: tuple[str, ...] = ()
    """What shows that thoughts begin, for people; also where a format tells them by a header."""
    arguments: Notation = "JSON"
    ids: str | None = None
    """What stands before the number in ids that count the calls of a conversation, `functions.{name}:`."""
    aliases: tuple[str, ...] = ()
    """Other names that the field uses for it."""

    def __repr__(self) -> str:
        """Its name: all that it is made of would fill a screen."""
        return f"<Format {self.name}>"

    def numbered(self, call: ToolCall, n: int) -> ToolCall:
        """The call under its id as number `n` of a conversation; under its own where that counts too."""
        if self.ids is None or re.fullmatch(re.escape(self.ids).replace(r"\{name\}", ".+") + r"\d+", call.id):
            return call
        return msgspec.structs.replace(call, id=self.ids.replace("{name}", call.name) + str(n))

    def write_calls(self, calls: Iterable[ToolCall]) -> str:
        """All calls of a reply, as the model writes them."""
        written = [self.write_call(self.numbered(call, n)) for n, call in enumerate(calls)]
        if self.first:
            numbered = enumerate(written, 1)
            written = [text.replace(self.first, self.first.replace("1", str(n)), 1) for n, text in numbered]
        return self.section[0] + self.separator.join(written) + self.section[1]


class Writer(Protocol):
    """Turns events into one API's stream."""

    def send(self, event: AnyEvent) -> bytes:
        """The bytes that this event adds; b"" where it adds none.

        Raises: OrderError: a bug in whoever sent it.
        """


class Outgoing(NamedTuple):
    """What to send to a server behind."""

    body: bytes
    warnings: tuple[Warning, ...]
    """What its API cannot say, or says in another way."""
    watched: tuple[str, ...] = ()
    """Stop strings that the server does not know of: whoever reads the answer ends it there."""
    opened: str = ""
    """Of a prompt: what of the reply it has opened already, such as `<think>`."""
    written_as: str = ""
    """The format that the answer is held to, where that is none of the model's own."""


class Reader(Protocol):
    """Reads a server's answer, streamed or whole, in any cut; never raises, as an answer that is none is a Failure."""

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """The events that these bytes add."""

    def close(self) -> list[AnyEvent]:
        """The events that the end of the answer adds."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How an API is asked for the number of a request's tokens alone."""

    path: str
    """Where, `/v1/messages/count_tokens`."""
    read_request: Callable[[bytes | str], Request]
    """Raises: CallerError: what is wrong with the body, and where."""
    write_count: Callable[[int, int | None], bytes]
    """The body of the answer: the tokens, and how many of them context edits removed before; None: no edit is asked."""
    members: frozenset[str]
    """Of the body of a request, what a server behind is asked with: some refuse any other."""
    read_count: Callable[[bytes], int]
    """The number in a server's answer. Raises: RequestError: there is none."""


@dataclass(frozen=True, slots=True)
class Form:
    """How an API writes tools, calls or results, for those who convert them by hand; its request knows the rest."""

    example: str
    """One of them, for people."""
    marks: Mapping[str, str]
    """The fields that tell it, and their values; empty: any value."""
    request: str
    """The smallest request, with `$` in the place of a list of them."""
    path: str
    """Where the list stands in that, `$.messages[0].tool_calls`."""
    written: tuple[str | int | slice, ...]
    """Where they stand in what `write_request` makes of the model's words and theirs."""
    slips: Mapping[str, str] = field(default_factory=dict)
    """What another API calls a field, by its path, and what this one does."""
    arguments: str = ""
    """Of a call: where its arguments stand."""


Kind: TypeAlias = Literal["tool", "call", "result"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: how it asks and how it answers."""

    name: str
    """The vendor's own name of the API, `anthropic_messages`."""
    path: str
    """Where it is served, `/v1/messages`."""
    read_request: Callable[[bytes | str], Request]
    """Raises: CallerError: what is wrong with the body, and where."""
    writer: Callable[[Request], Writer]
    write_reply: Callable[[Reply, Request], bytes]
    write_error: Callable[[DragomanError], bytes]
    """The body of an error that comes before the answer has begun; its status is `status`."""
    status: Callable[[DragomanError], int]
    ping: bytes
    """What keeps a silent stream open."""
    write_request: Callable[[Request, str], Outgoing]
    """The body for a server behind, which knows the model by this name.

    Raises: UnsupportedError: what its API cannot say, and cannot be left out.
    """
    reader: "Callable[[Request, Turn], Reader]"
    """Reads the answer of a server behind to this request."""
    sign: Callable[[str], Mapping[str, str]]
    """The headers that a server behind wants to see, with this key, or none where it is empty."""
    names: re.Pattern[str] = ANY
    """Names of tools that its servers take; any other is spelled otherwise (core/identifiers.py)."""
    versioned: bool = False
    """Clients are told a base URL that has the version in it, `/v1` or another; else they add it themselves."""
    carries: tuple[str, ...] = ()
    """Headers of a client, in small letters, that go on to a server of the same API."""
    asides: frozenset[str] = frozenset()
    """Members of a request's `extra` that are for the vendor's own servers, at `hosts`, and for no model to read."""
    hosts: frozenset[str] = frozenset()
    """Where the vendor's own servers are."""
    listed_as: Callable[[str], str] = str
    """What a model is called where its clients list models; some pass over any other name."""
    meant_by: Callable[[str], str] = str
    """The model that such a name means; any other name is as it is."""
    counting: Counting | None = None
    """Where the API has that."""
    passing: Passing | None = None
    """How a stream goes from a server to a client of this API unread; None: it is always read."""
    early_usage: bool = False
    """Clients read the size of the prompt off the beginning of a stream."""
    forms: Mapping[Kind, Form] = field(default_factory=dict)
    pieces: tuple[tuple[str, str, str], ...] = ()
    """What shows that JSON is a piece of its stream: a field, a regular expression of its value, and what stands around
    the piece in the stream, with `$` in its place; some SDKs hand out less than came.
    """


class Tap(Protocol):
    """Hears what passes between one exchange and its models; what goes through it comes out as it came."""

    def asks(self, backend: "Backend", request: Request) -> None:
        """This backend is asked, a hidden second time too."""

    def gave(self, events: AsyncGenerator[AnyEvent, None]) -> AsyncGenerator[AnyEvent, None]:
        """Its events, before they are guarded."""

    def heard(self, to: str, sent: object, pieces: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """A model is sent this; what it says, cut as it came."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one exchange is given from outside: identity, time, chance."""

    id: str
    created: int
    """Seconds since 1970."""
    new_id: NewId
    leave: Collection[str] = ()
    """What is not to be mended in a call that is read, by the names of docs/guard.md."""
    tap: Tap | None = None
    is_partial: bool = False
    """Of an answer only its beginning and end are read, so that a call without a name says nothing about the server."""
    progress: Callable[[Progress], None] | None = None
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

    def models(self) -> Sequence[Model]:
        """What it offers now."""

    async def refresh(self) -> None:
        """Learn anew what it offers, as somebody asks for something else; nothing where that was done just now."""

    def ask(self, request: Request, turn: Turn) -> AsyncGenerator[AnyEvent, None]:
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


class Relay(Protocol):
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
class Relays(Protocol):
    """A backend that can do without reading an answer."""

    def relay(self, request: Request, body: bytes, name: str, turn: Turn) -> Relay | None:
        """The answer to this very body, which names the model as its client does; None: `ask` is the only way."""


@runtime_checkable
class Described(Protocol):
    """A backend whose answers can be replayed without what stands behind it."""

    def facts(self, model: str) -> Mapping[str, object]:
        """All that a replay has to know of it, as JSON has it; nothing secret."""

    def shown(self, request: Request) -> Request:
        """The request with what it remembers of the model's own words, `Message.written`."""

    def secrets(self) -> Sequence[str]:
        """What is to be shown to nobody."""
