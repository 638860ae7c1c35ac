"""How an API declares tools that its vendor runs, and shows their calls and results.

The results of past calls arrive with the next request, in the vendor's blocks. What the model read of a result is in
them as opaque text (`opaque`), as the vendor's own is in its `encrypted_content`, so that the model reads it again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dragoman.core.events import AnyEvent
from dragoman.core.messages import Message, Part, Request, Text, ToolResult, Usage
from dragoman.text import json_cursor
from dragoman.vendor_tools.remote import ApprovedCall
from dragoman.vendor_tools.tool import ToolRunResult, VendorTool, VendorToolCall


def no_events(call: VendorToolCall, result: ToolRunResult | None = None) -> list[AnyEvent]:
    """Returns no events, for an API that does not show calls."""
    return []


def nothing(messages: Sequence[Message]) -> tuple[Any, ...]:
    """Returns nothing, for an API without approvals or lists of tools."""
    return ()


def unchanged(request: Request) -> tuple[Message, ...]:
    """Returns the messages, for an API without vendor's blocks in its history."""
    return request.messages


def no_tools(request: Request) -> tuple[str, ...]:
    """Returns no names, for an API without tool searches."""
    return ()


def only_usage(usage: Usage, uses: Mapping[str, int]) -> Usage:
    """Returns the usage, for an API that does not count tool calls."""
    return usage


@dataclass(frozen=True, slots=True)
class VendorToolCodec:
    """The tools of one API's vendor."""

    declared: Callable[[Request], tuple[VendorTool, ...]]
    """Returns the tools of the request that the vendor runs. Raises `RequestError` for invalid options."""
    begin: Callable[[VendorToolCall], list[AnyEvent]] = no_events
    """Returns the events of a call that begins."""
    finish: Callable[[VendorToolCall, ToolRunResult], list[AnyEvent]] = no_events
    """Returns the events of its result."""
    reported_kinds: frozenset[str] = field(default_factory=frozenset)
    """Kinds of tools for which the API has a block that says that the call failed."""
    as_functions: Callable[[Request], tuple[Message, ...]] = unchanged
    """Returns the messages with past calls of such tools as calls of functions, with their results."""
    found_tools: Callable[[Request], Iterable[str]] = no_tools
    """Returns the names of the tools that past tool searches have found, of the client or of the vendor."""
    count_uses: Callable[[Usage, Mapping[str, int]], Usage] = only_usage
    """Adds the number of calls, by kind, to the usage of a response."""
    options: frozenset[str] = frozenset()
    """Fields of a request's `extra` that declare tools; their names are also the `declared` of these tools."""
    can_pause: bool = False
    """A response can end early, and the client sends it back to continue it."""
    has_annotations: bool = False
    """Texts can name the sources that they mention, as `url_citation`."""
    ask_approval: Callable[[VendorToolCall], list[AnyEvent]] = no_events
    """Returns the events that ask the client whether a call may be run."""
    approved: Callable[[Sequence[Message]], tuple[ApprovedCall, ...]] = nothing
    """Returns the calls that the last message approves."""
    listed: Callable[[Sequence[Message]], tuple[str, ...]] = nothing
    """Returns the labels of servers whose tools the client has got already."""
    server_options: frozenset[str] = frozenset()
    """Kinds of tools that only contain options of declared servers."""
    counts_together: bool = False
    """`max_uses` limits the calls of all tools together, except tool searches."""
    has_citations: bool = False
    """Texts can name the sources that they quote, as `web_search_result_location`."""
    shows_calls: bool = True
    """Calls are parts of a response, so they separate the texts around them."""


class TurnBuilder:
    """Splits an assistant message with calls and results of vendor's tools into messages of functions.

    text, call, result, text    →    assistant: text, call · tool: result · assistant: text
    """

    def __init__(self, message: Message) -> None:
        self._message = message
        self._messages: list[Message] = []
        self._parts: list[Part] = []
        self._results: list[ToolResult] = []

    def add(self, part: Part) -> None:
        """Adds a part of the message; a call of the vendor's tool as a `ToolCall`."""
        if self._results:
            self._flush()
        self._parts.append(part)

    def add_result(self, call_id: str, text: str, *, is_error: bool) -> None:
        """Adds the result of a call."""
        self._results.append(ToolResult(call_id, (Text(text),), is_error))

    def messages(self) -> list[Message]:
        """Returns all messages."""
        self._flush()
        return self._messages

    def _flush(self) -> None:
        if self._parts:
            self._messages.append(Message("assistant", tuple(self._parts), self._message.extra))
        if self._results:
            self._messages.append(Message("tool", tuple(self._results)))
        self._parts, self._results = [], []


def string_argument(arguments: str, *names: str) -> str:
    """Returns the first of these arguments that is a string; "" if there is none."""
    fields = json_cursor.parse(arguments).fields()
    for name in names:
        value = fields.get(name)
        if value is not None and value.kind == "string":
            return value.string()
    return ""


def encode(value: object) -> str:
    """Returns the value as JSON."""
    return msgspec.json.encode(value).decode()
