"""The record that describes one API: how clients ask and are answered, and how servers are asked and answer."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Notice
from dragoman.core.identifiers import ANY
from dragoman.core.messages import Reply, Request
from dragoman.wire.passing import StreamPassthrough


class ResponseWriter(Protocol):
    """Turns events into one API's stream."""

    def send(self, event: AnyEvent) -> bytes:
        """The bytes that this event adds; b"" where it adds none.

        Raises: OrderError: a bug in whoever sent it.
        """


class UpstreamRequest(NamedTuple):
    """What to send to a server behind."""

    body: bytes
    warnings: tuple[Notice, ...]
    """What its API cannot say, or says in another way."""
    watched: tuple[str, ...] = ()
    """Stop strings that the server does not know of: whoever reads the answer ends it there."""
    opened: str = ""
    """Of a prompt: what of the reply it has opened already, such as `<think>`."""
    written_as: str = ""
    """The format that the answer is held to, where that is none of the model's own."""


class ResponseReader(Protocol):
    """Reads a server's answer, streamed or whole, in any cut; never raises, as an answer that is none is a Failure."""

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """The events that these bytes add."""

    def close(self) -> list[AnyEvent]:
        """The events that the end of the answer adds."""


@dataclass(frozen=True, slots=True)
class TokenCounting:
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
class ObjectForm:
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


ObjectKind: TypeAlias = Literal["tool", "call", "result"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: how it asks and how it answers."""

    name: str
    """The vendor's own name of the API, `anthropic_messages`."""
    path: str
    """Where it is served, `/v1/messages`."""
    read_request: Callable[[bytes | str], Request]
    """Raises: CallerError: what is wrong with the body, and where."""
    writer: Callable[[Request], ResponseWriter]
    write_reply: Callable[[Reply, Request], bytes]
    write_error: Callable[[DragomanError], bytes]
    """The body of an error that comes before the answer has begun; its status is `status`."""
    status: Callable[[DragomanError], int]
    ping: bytes
    """What keeps a silent stream open."""
    write_request: Callable[[Request, str], UpstreamRequest]
    """The body for a server behind, which knows the model by this name.

    Raises: UnsupportedError: what its API cannot say, and cannot be left out.
    """
    reader: Callable[[Request, ExchangeContext], ResponseReader]
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
    counting: TokenCounting | None = None
    """Where the API has that."""
    passing: StreamPassthrough | None = None
    """How a stream goes from a server to a client of this API unread; None: it is always read."""
    early_usage: bool = False
    """Clients read the size of the prompt off the beginning of a stream."""
    forms: Mapping[ObjectKind, ObjectForm] = field(default_factory=dict)
    pieces: tuple[tuple[str, str, str], ...] = ()
    """What shows that JSON is a piece of its stream: a field, a regular expression of its value, and what stands around
    the piece in the stream, with `$` in its place; some SDKs hand out less than came.
    """
