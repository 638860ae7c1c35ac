"""Description of one API: how its requests and responses are read and written, on the client side and upstream."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Notice
from dragoman.core.identifiers import ANY_STRING
from dragoman.core.messages import Reply, Request
from dragoman.vendor_tools.codec import VendorToolCodec
from dragoman.wire.passthrough import StreamPassthrough


class ResponseWriter(Protocol):
    """Writes events as one API's SSE stream."""

    def feed(self, event: AnyEvent) -> bytes:
        """Returns the bytes for this event; b"" if it adds none.

        Raises:
            EventOrderError: The event violates the grammar of core/events.py: a bug in the code that sent it.
        """


class UpstreamRequest(NamedTuple):
    """A request body for an upstream server, with what must be done for its response."""

    body: bytes
    warnings: tuple[Notice, ...]
    """Fields that the server's API cannot represent, or represents differently."""
    stop_locally: tuple[str, ...] = ()
    """Stop strings that the server does not support: the reader of the response ends it at the first of them."""
    prompt_suffix: str = ""
    """For a prompt: the beginning of the reply that the prompt already contains, such as `<think>`."""
    reply_format: str = ""
    """The format to which the response is constrained, if it is not the model's own."""


class ResponseReader(Protocol):
    """Parses a server's response, streamed or whole, in chunks of any size.

    It never raises: an invalid response yields a Failure event.
    """

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """Returns the events that these bytes complete."""

    def close(self) -> list[AnyEvent]:
        """Returns the events that the end of the response adds."""


@dataclass(frozen=True, slots=True)
class TokenCounting:
    """How an API counts the tokens of a request without generating."""

    path: str
    """URL path, such as `/v1/messages/count_tokens`."""
    read_request: Callable[[bytes | str], Request]
    """Raises `ClientError` with the problem in the body and its position."""
    write_count: Callable[[int, int | None], bytes]
    """Returns the response body for a token count and the tokens removed by context edits (None: no edits
    requested)."""
    forwarded_fields: frozenset[str]
    """Fields of a request body that are sent upstream; some servers reject any other field."""
    read_count: Callable[[bytes], int]
    """Returns the count in a server's response. Raises `RequestError` if there is none."""


@dataclass(frozen=True, slots=True)
class ObjectForm:
    """JSON form of tools, calls or results in an API, for `convert_tools` and its siblings."""

    example: str
    """An example object, shown in error messages."""
    discriminators: Mapping[str, str]
    """Fields that identify the form, and their values; an empty value matches any."""
    request: str
    """The smallest request, with `$` in place of a list of such objects."""
    path: str
    """Path of the list in that request, such as `$.messages[0].tool_calls`."""
    output_path: tuple[str | int | slice, ...]
    """Path of the list in the output of `write_request`."""
    common_mistakes: Mapping[str, str] = field(default_factory=dict)
    """Names that other APIs give to a field, by path, and the name in this API; used in error messages."""
    arguments: str = ""
    """For a call: the path of its arguments."""


ObjectKind: TypeAlias = Literal["tool", "call", "result"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: its names, paths, readers and writers."""

    name: str
    """The vendor's own name of the API, such as `anthropic_messages`."""
    path: str
    """URL path at which the gateway serves it, such as `/v1/messages`."""
    read_request: Callable[[bytes | str], Request]
    """Raises `ClientError` with the problem in the body and its position."""
    writer: Callable[[Request], ResponseWriter]
    write_reply: Callable[[Reply, Request], bytes]
    write_error: Callable[[DragomanError], bytes]
    """Returns the body of an error that occurs before the response has begun; `status` is its HTTP status."""
    status: Callable[[DragomanError], int]
    ping: bytes
    """Bytes sent as keep-alive while the backend is idle."""
    write_request: Callable[[Request, str], UpstreamRequest]
    """Returns the body for an upstream server, given the server's name of the model.

    Raises `UnsupportedError` for content that the server's API cannot represent and that must not be dropped."""
    reader: Callable[[Request, ExchangeContext], ResponseReader]
    """Creates the reader of an upstream server's response to this request."""
    auth_headers: Callable[[str], Mapping[str, str]]
    """Returns the authentication headers of an upstream server for this key; none if the key is empty."""
    tool_name_pattern: re.Pattern[str] = ANY_STRING
    """Tool names that servers of the API accept; other names are replaced (core/identifiers.py)."""
    base_url_has_version: bool = False
    """Clients expect a base URL that contains the version, such as `/v1`; else they add it themselves."""
    forwarded_headers: tuple[str, ...] = ()
    """Client headers, in lower case, that are forwarded to a server of the same API."""
    vendor_only_fields: frozenset[str] = frozenset()
    """Fields of a request's `extra` that only the vendor's own servers, at `vendor_hosts`, understand."""
    vendor_hosts: frozenset[str] = frozenset()
    """Host names of the vendor's own servers."""
    display_name: Callable[[str], str] = str
    """Returns the name of a model in model lists for clients of this API; some ignore any other name."""
    resolve_display_name: Callable[[str], str] = str
    """Returns the model of such a name; any other name is returned unchanged."""
    token_counting: TokenCounting | None = None
    """How to count tokens; None: the API cannot."""
    passthrough: StreamPassthrough | None = None
    """How to forward a stream of this API without parsing each event; None: streams are always parsed."""
    usage_in_first_event: bool = False
    """Clients read the prompt's token count from the beginning of a stream."""
    forms: Mapping[ObjectKind, ObjectForm] = field(default_factory=dict)
    vendor_tools: VendorToolCodec | None = None
    """Tools that the API's vendor runs itself; None: it has none."""
    chunk_forms: tuple[tuple[str, str, str], ...] = ()
    """How to recognize JSON as a chunk of this API's stream: a field, a regular expression for its value, and the text
    around the chunk in the stream, with `$` in its place. Some SDKs hand out less than the server sent."""
