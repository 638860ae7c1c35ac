"""A request on its way to an upstream server: its body, and what of it that server's API cannot express.

What a client sent is in the terms of its own API. Sent to the same API it is passed on unchanged; for another API, what
has no equivalent there is dropped, and each dropped thing is reported by name in a warning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import UnsupportedError, quote
from dragoman.core.events import Notice
from dragoman.core.identifiers import ANY, spelled
from dragoman.core.messages import (
    Audio,
    ExtraFields,
    JsonText,
    Message,
    Part,
    PreviousResponseRef,
    Reasoning,
    Request,
    ResultPart,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from dragoman.schema.adapt import Adapted, adapt, summary
from dragoman.schema.relax import Change
from dragoman.schema.targets import Target
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.history import told_to_go_on
from dragoman.wire.openai_fields import APIS as OPENAI_APIS
from dragoman.wire.openai_fields import DETAILS

_READ_TOO: Final = frozenset(
    (
        *(
            "about_namespace",
            "detail",
            "functions",
            "in_field",
            "in_item",
            "max_completion_tokens",
            "namespace",
            "output_config",
            "reasoning_effort",
        ),
        *("response_format", "search_result", "source", "strict", "thinking", "type", "x-anthropic-billing-header"),
    )
)
"""Fields that stay in `extra` as they came though they are read: what they say is in a value, for any API, or is for
their own vendor alone."""
_SAYS_NOTHING: Final = frozenset(("id", "index", "status"))
"""What a client sends back of its account of an answer; no model was ever told of it."""
_READ_IN_PART: Final = {"reasoning": "effort", "text": "format"}
"""Of these, only that member is read."""
_NAMES: Final = {"in_namespace": "namespace"}
"""What the caller knows under another name."""

REDACTED: Final = ("redacted reasoning",)
SIGNATURE: Final = ("signature", "signature of reasoning")
UNPROVEN: Final = ("reasoning", "reasoning without a signature of this vendor")
"""Reasoning that servers do not accept, as `TranslationReport.lost` takes it."""
_MEDIA: Final = ("image", "document")
"""Parts that are known, with a source that is not: their JSON would be nothing to read."""
_PARTS: Final = {
    Audio: "audio",
    PreviousResponseRef: "a reference to an earlier response",
    Reasoning: "reasoning",
    ToolCall: "a tool call",
    ToolResult: "a tool result",
}
WARNED_NAMES: Final = 64
"""Names reported one by one for one code; a last warning has the number of those left."""

_encode = msgspec.json.Encoder().encode


def told_as_error(parts: Sequence[ResultPart]) -> tuple[ResultPart, ...]:
    """What came of a call that failed, for an API that has no other way to say so than "Error: " before its text."""
    match parts:
        case [Text(text, extra), *rest]:
            return (Text(f"Error: {text}", extra), *rest)
    return (Text("Error: "), *parts)


def fitted(request: Request, target: Target) -> tuple[Request, tuple[Notice, ...]]:
    """The request with all its schemas as this kind of server takes them, and what they lost."""
    told: dict[str, tuple[Change, ...]] = {}
    tools = []
    for tool in request.tools:
        made = adapt(tool.parameters, target) if tool.kind == "function" else Adapted(tool.parameters, ())
        told[tool.name] = made.changes
        tools.append(replace(tool, parameters=made.json))
    reply = adapt(request.response_schema, target) if request.response_schema else Adapted("", ())
    told["the reply"] = reply.changes
    changed = {of: changes for of, changes in told.items() if changes}
    warnings = (Notice("schema_adapted", f"for {target.name}: {summary(changed)}"),) if changed else ()
    return replace(request, tools=tuple(tools), response_schema=reply.json), warnings


def warned(code: str, message: str, told: Mapping[str, str]) -> Iterator[Notice]:
    """Yields one warning for each name in `told`; the description of each replaces `{}` in the message."""
    for name, about in islice(told.items(), WARNED_NAMES):
        yield Notice(code, message.format(about), detail=name)
    if (more := len(told) - WARNED_NAMES) > 0:
        yield Notice(code, message.format(f"{more} more"), detail=f"{more} more")


def is_content(part: UnknownPart) -> bool:
    """Whether it is text for the model to read as its JSON: an unknown part, and no item or call of a vendor's."""
    return part.type not in _MEDIA and part.path.rpartition(".")[2].startswith(("content", "output"))


def as_json(part: UnknownPart) -> tuple[str, str]:
    """Returns the name and the description of a warning that a part is its JSON as text."""
    return part.type or "content", f"a part of type {quote(part.type)} is its JSON" if part.type else "it is its JSON"


def one_choice(request: Request) -> None:
    """Refuses a request for several choices, where its answer is not passed on unread.

    Raises: UnsupportedError: it asks for more than one.
    """
    if request.choices > 1:
        only = "only a Chat Completions server in mode native gives more, without parallel_tool_calls: false"
        raise UnsupportedError(f"expected n of 1, got {request.choices}; {only}", "$.n")


def callable_tools(request: Request, where: str) -> tuple[Tool, ...]:
    """Returns the tools that clients run; `where` names what the others are not available at.

    Raises: UnsupportedError: a tool that its vendor runs must be called, or nothing else is offered: a model that is
        shown none of them makes up what they would find.
    """
    functions = tuple(tool for tool in request.tools if tool.kind == "function")
    hosted = list(dict.fromkeys(tool.kind for tool in request.tools if tool.kind != "function"))
    choice = request.tool_choice
    if choice.mode == "none" or not hosted:
        return functions
    if choice.mode == "named" and all(tool.name != choice.name for tool in functions):
        what = f"tool_choice names {quote(choice.name)}, which its vendor runs and {where} does not have"
        raise UnsupportedError(f"expected a tool that the client runs; {what}", "$.tool_choice")
    if not functions:
        what = f"{', '.join(map(quote, hosted[:WARNED_NAMES]))}, which their vendor runs and {where} does not have"
        raise UnsupportedError(f"expected a tool that the client runs, got only {what}", "$.tools")
    return functions


class TranslationReport:
    """Says what goes along, and keeps account of what does not."""

    __slots__ = (
        *("_adapted", "_changed", "_dialect", "_lost", "_source", "_watched"),
        *("native", "openai", "same", "thoughts_as"),
    )

    def __init__(self, request: Request, dialect: str) -> None:
        """Raises: UnsupportedError: it goes on from an answer that only its own API's server may know."""
        self.native = request.dialect in ("", dialect)
        """The request's own fields are in the terms of this API."""
        self.same = request.dialect == dialect
        """It came by this very API, so that it can be sent on as it came."""
        self.openai = {request.dialect, dialect} == OPENAI_APIS
        """It came by the other of OpenAI's two APIs."""
        self.thoughts_as = request.thoughts_as
        self._dialect = dialect
        self._lost: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._watched: tuple[str, ...] = ()
        self._adapted: dict[str, tuple[Change, ...]] = {}
        self._source = request.dialect
        if request.previous is not None and not self.same:
            raise self.refused("a response that is continued", request.previous.path)

    def spelled(self, request: Request, names: re.Pattern[str], ids: re.Pattern[str]) -> Request:
        """Returns the request with names and ids as this API takes them, and no parts that only another one has.

        Such parts of the model's messages are dropped, all others become their JSON as text. A client of this very API
        has chosen its own names.
        """
        request = spelled(request, ANY if self.same else names, ids)
        return replace(request, messages=tuple(map(self._known, request.messages)))

    def _known(self, message: Message) -> Message:
        if not any(isinstance(part, UnknownPart | ToolResult) for part in message.parts):
            return message
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                part = replace(part, parts=tuple(map(self._shown, part.parts)))
            if isinstance(part, UnknownPart) and part.type and self.native:
                parts.append(part)
            elif isinstance(part, UnknownPart) and message.role == "assistant" and part.type:
                self.lost(part.type, f"a part of type {quote(part.type)}")
            else:
                parts.append(self._shown(part) if isinstance(part, UnknownPart) and is_content(part) else part)
        return replace(message, parts=tuple(parts))

    def _shown(self, part: ResultPart) -> ResultPart:
        if not isinstance(part, UnknownPart) or (self.native and part.type):
            return part
        self.changed(*as_json(part))
        return Text(bytes(part.raw).decode())

    def offered(self, request: Request) -> list[Tool]:
        """Returns the tools that this API can be sent.

        Raises: UnsupportedError: a tool that its vendor runs must be called, or nothing else is offered.
        """
        if self.native:
            return list(request.tools)
        tools = callable_tools(request, f"a server of {self._dialect}")
        for tool in request.tools:
            if tool.kind != "function":
                self.lost(tool.kind, f"tool {quote(tool.kind)}")
        return list(tools)

    def strict(self, tool: Tool, target: Target) -> bool:
        """Whether the tool's schema is to be binding; `target` has what such schemas may be in this API."""
        if self.native or not tool.strict:
            return False
        return self._binding(tool.parameters, target)

    def strict_reply(self, request: Request, target: Target) -> bool:
        """The same of the reply's schema."""
        return request.response_strict and self._binding(request.response_schema, target)

    def _binding(self, schema: JsonText, target: Target) -> bool:
        """What an OpenAI client called strict is strict for OpenAI; other schemas only where nothing is narrowed."""
        if self._source in OPENAI_APIS or not target.required or not adapt(schema, target).changes:
            return True
        self.lost("strict")
        return False

    def watch(self, stop: Sequence[str]) -> bool:
        """Have these looked for in the answer here, as the server cannot, or does not tell which one it was.

        Whether there are any: such an answer must be streamed, as what comes behind one is cut off.
        """
        self._watched = tuple(stop)
        return bool(stop)

    def going_on(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A conversation that ends with the model's words ends with the user's, as not every server goes on from those.

        Sent on to its own API it goes as it came.
        """
        told = tuple(messages) if self.same else told_to_go_on(messages)
        if len(told) > len(messages):
            self.changed("prefill", "the beginning of the answer is followed by a user message to continue it")
        return told

    def kept(self, extra: ExtraFields) -> Mapping[str, msgspec.Raw]:
        """The fields of the caller's own API, where that is this one."""
        if self.native:
            return extra
        for name, raw in extra.items():
            name = _NAMES.get(name, name.removeprefix("outer."))  # a dialect's own word for where it stood
            if name in _READ_IN_PART and bytes(raw).startswith(b"{"):
                members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
                self.kept({f"{name}.{inner}": x for inner, x in members.items() if inner != _READ_IN_PART[name]})
            elif name not in _READ_TOO | _SAYS_NOTHING and bytes(raw) != b"null":
                self.lost(name)
        return {}

    def detail(self, extra: ExtraFields) -> dict[str, object]:
        """Returns the resolution at which an image is to be read, from one of OpenAI's APIs for the other."""
        found = extra.get("detail")
        if found is None or bytes(found) == b'"auto"':
            return {}
        if self._source in OPENAI_APIS and self._dialect in OPENAI_APIS and bytes(found) in DETAILS:
            return {"detail": found}
        self.lost("detail")
        return {}

    def lost(self, name: str, told: str = "") -> None:
        """Records something that this API has no equivalent of; `told` describes it where the name does not."""
        self._lost.setdefault(name, told or name)

    def changed(self, name: str, told: str) -> None:
        """Records something that is expressed in another way, by the name of what it is about."""
        self._changed.setdefault(name, told)

    def schema(self, schema: JsonText, target: Target, of: str, *, always: bool = False) -> msgspec.Raw:
        """The schema of this tool, or of the reply, as such a server takes it.

        What came by this very API goes as it came, as there are more servers of it than the vendor's; `always`
        where none of them takes more.
        """
        if self.same and not always:
            return msgspec.Raw(schema.encode())
        adapted = adapt(schema, target)
        if adapted.changes:
            self._adapted[of] = adapted.changes
        return msgspec.Raw(adapted.json.encode())

    def raw(self, part: UnknownPart) -> msgspec.Raw:
        """An unknown part as it came.

        Raises: UnsupportedError: it is of another API.
        """
        if not self.native:
            raise self.refused(f"a part of type {quote(part.type)}", part.path)
        return part.raw

    def refused_part(self, part: Part) -> UnsupportedError:
        """The error for a part that this message cannot have."""
        return self.refused(f"{_PARTS.get(type(part), 'a part of this type')} in this message")

    def refused(self, what: str, path: str = "") -> UnsupportedError:
        """The error for what cannot be left out without changing what is asked."""
        return UnsupportedError(f"{what} cannot be sent on to a server of {self._dialect}", path)

    def close(self, body: Mapping[str, object]) -> UpstreamRequest:
        """The body, and the account."""
        warnings = [
            *warned("content_dropped", f"{self._dialect} has no equivalent of: {{}}", self._lost),
            *warned("request_adapted", f"for {self._dialect}: {{}}", self._changed),
        ]
        if self._adapted:
            warnings.append(Notice("schema_adapted", f"for {self._dialect}: {summary(self._adapted)}"))
        return UpstreamRequest(_encode(body), tuple(warnings), self._watched)
