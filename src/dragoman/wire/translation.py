"""Translation of a request for an upstream server, and the report of what the server's API cannot represent.

A client's request uses the terms of its own API. It is forwarded unchanged to a server of the same API. For another
API, content that has no equivalent there is dropped, and a notice names each dropped item.
"""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import UnsupportedError, quote
from dragoman.core.events import Notice
from dragoman.core.identifiers import ANY_STRING, rename_for_api
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
    known_tools,
)
from dragoman.schema.adapt import AdaptedSchema, adapt, summarize_changes
from dragoman.schema.relax import SchemaChange
from dragoman.schema.targets import Target
from dragoman.wire.dialect import UpstreamRequest
from dragoman.wire.history import append_continue_prompt
from dragoman.wire.openai_fields import APIS as OPENAI_APIS
from dragoman.wire.openai_fields import DETAILS

_PARSED_FIELDS: Final = frozenset(
    (
        *("about_namespace", "detail", "display_height_px", "display_width_px", "enable_zoom", "functions", "in_field"),
        *("in_item", "max_completion_tokens", "namespace", "output_config", "reasoning_effort", "response_format"),
        *("search_result", "source", "strict", "thinking", "toolset", "toolset_name", "type"),
        "x-anthropic-billing-header",
    )
)
"""Fields that stay in `extra` unchanged although they are parsed: their meaning is in a typed field, for any API, or
concerns their own vendor only."""
_RESPONSE_ONLY_FIELDS: Final = frozenset(("id", "index", "status"))
"""Fields of a response that a client sends back; they were never meant for the model."""
_NOT_REPORTED: Final = _PARSED_FIELDS | _RESPONSE_ONLY_FIELDS
_MAY_BE_UNKNOWN: Final = (UnknownPart, ToolResult)
"""Types of parts that are, or may contain, parts that only another API has."""
_PARTLY_PARSED: Final = {"reasoning": "effort", "text": "format"}
"""Of these fields, only the named member is parsed."""
_CALLER_NAMES: Final = {"in_namespace": "namespace"}
"""Internal field names, and the caller's names for them."""

REDACTED: Final = ("redacted reasoning",)
SIGNATURE: Final = ("signature", "signature of reasoning")
UNSIGNED: Final = ("reasoning", "reasoning without a signature of this vendor")
"""Reasoning that servers do not accept, as arguments of `TranslationReport.dropped`."""
MEDIA_TYPES: Final = ("image", "document")
"""Known parts with an unknown source: their JSON would not be readable for the model."""
_PART_NAMES: Final = {
    Audio: "audio",
    PreviousResponseRef: "a reference to an earlier response",
    Reasoning: "reasoning",
    ToolCall: "a tool call",
    ToolResult: "a tool result",
}
MAX_NOTICES: Final = 64
"""Maximum notices per code; one more notice contains the number of the remaining names."""

_encode = msgspec.json.Encoder().encode


def prefix_error(parts: Sequence[ResultPart]) -> tuple[ResultPart, ...]:
    """Returns the parts of a failed tool result with "Error: " before the text, for APIs without an error flag."""
    match parts:
        case [Text(text, extra), *rest]:
            return (Text(f"Error: {text}", extra), *rest)
    return (Text("Error: "), *parts)


def adapt_request_schemas(request: Request, target: Target) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request with its schemas adapted to this server type, and a notice of the changes."""
    if not request.tools and not request.response_schema:
        return request, ()
    changes_by_tool: dict[str, tuple[SchemaChange, ...]] = {}
    tools = []
    for tool in request.tools:
        adapted = adapt(tool.parameters, target) if tool.kind == "function" else AdaptedSchema(tool.parameters, ())
        changes_by_tool[tool.name] = adapted.changes
        tools.append(tool if adapted.json == tool.parameters else replace(tool, parameters=adapted.json))
    reply = adapt(request.response_schema, target) if request.response_schema else AdaptedSchema("", ())
    changes_by_tool["the reply"] = reply.changes
    changed = {owner: changes for owner, changes in changes_by_tool.items() if changes}
    warnings = (Notice("schema_adapted", f"for {target.name}: {summarize_changes(changed)}"),) if changed else ()
    return replace(request, tools=tuple(tools), response_schema=reply.json), warnings


def notices_by_name(code: str, message: str, messages: Mapping[str, str]) -> Iterator[Notice]:
    """Yields one notice for each name in `messages`; the name's description replaces `{}` in the message."""
    for name, about in islice(messages.items(), MAX_NOTICES):
        yield Notice(code, message.format(about), detail=name)
    if (more := len(messages) - MAX_NOTICES) > 0:
        yield Notice(code, message.format(f"{more} more"), detail=f"{more} more")


def is_content(part: UnknownPart) -> bool:
    """Returns True for an unknown content part, whose JSON is shown to the model; False for a vendor's item or call."""
    return part.type not in MEDIA_TYPES and part.path.rpartition(".")[2].startswith(("content", "output"))


def json_text_notice(part: UnknownPart) -> tuple[str, str]:
    """Returns the name and the description for a notice that a part is sent as its JSON text."""
    return part.type or "content", f"a part of type {quote(part.type)} is its JSON" if part.type else "it is its JSON"


def require_single_choice(request: Request) -> None:
    """Rejects a request for several choices (`n` > 1), unless its response is forwarded as passthrough.

    Raises:
        UnsupportedError: The request asks for more than one choice.
    """
    if request.choices > 1:
        only = "only a Chat Completions server in tool mode native gives more, without parallel_tool_calls: false"
        raise UnsupportedError(f"expected n of 1, got {request.choices}; {only}", "$.n")


def client_run_tools(request: Request, where: str) -> tuple[Tool, ...]:
    """Returns the tools that clients run.

    Args:
        request: The request with its tools and tool choice.
        where: Name of the place where vendor-run tools are not available, for the error message.

    Raises:
        UnsupportedError: A tool that its vendor runs must be called, or only such tools are offered. A model
            without them would invent their results.
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
        what = f"{', '.join(map(quote, hosted[:MAX_NOTICES]))}, which their vendor runs and {where} does not have"
        raise UnsupportedError(f"expected a tool that the client runs, got only {what}", "$.tools")
    return functions


class TranslationReport:
    """Builds the upstream request and records every field that is dropped or adapted."""

    __slots__ = (
        *("_adapted_schemas", "_reworded", "_dialect", "_dropped", "_source", "_stop_locally"),
        *("is_native", "is_openai", "is_same_api", "reasoning_field"),
    )

    def __init__(self, request: Request, dialect: str) -> None:
        """Raises `UnsupportedError` if the request continues a response that only a server of its own API may know."""
        self.is_native = request.dialect in ("", dialect)
        """The request's own fields are in the terms of this API."""
        self.is_same_api = request.dialect == dialect
        """The request arrived through this same API, so that it can be forwarded unchanged."""
        self.is_openai = {request.dialect, dialect} == OPENAI_APIS
        """The request arrived through the other one of OpenAI's two APIs."""
        self.reasoning_field = request.reasoning_field
        self._dialect = dialect
        self._dropped: dict[str, str] = {}
        self._reworded: dict[str, str] = {}
        self._stop_locally: tuple[str, ...] = ()
        self._adapted_schemas: dict[str, tuple[SchemaChange, ...]] = {}
        self._source = request.dialect
        if request.previous_response is not None and not self.is_same_api:
            raise self.unsendable("a response that is continued", request.previous_response.path)

    def rename(self, request: Request, names: re.Pattern[str], ids: re.Pattern[str]) -> Request:
        """Returns the request with names and ids that this API accepts, and without parts that only another API has.

        Such parts of assistant messages are dropped; all others become their JSON as text. Names from a client of this
        same API are not changed.
        """
        request = rename_for_api(request, ANY_STRING if self.is_same_api else names, ids)
        messages: list[Message] = []
        for message in request.messages:
            for part in message.parts:
                if type(part) in _MAY_BE_UNKNOWN:
                    message = self._with_known_parts(message)
                    break
            messages.append(message)
        is_same = all(map(operator.is_, messages, request.messages))
        return request if is_same else replace(request, messages=tuple(messages))

    def _with_known_parts(self, message: Message) -> Message:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                part = replace(part, parts=tuple(map(self._as_text, part.parts)))
            if isinstance(part, UnknownPart) and part.type and self.is_native:
                parts.append(part)
            elif isinstance(part, UnknownPart) and message.role == "assistant" and part.type:
                self.dropped(part.type, f"a part of type {quote(part.type)}")
            else:
                parts.append(self._as_text(part) if isinstance(part, UnknownPart) and is_content(part) else part)
        return replace(message, parts=tuple(parts))

    def _as_text(self, part: ResultPart) -> ResultPart:
        if not isinstance(part, UnknownPart) or (self.is_native and part.type):
            return part
        self.adapted(*json_text_notice(part))
        return Text(bytes(part.raw).decode())

    def sendable_tools(self, request: Request) -> list[Tool]:
        """Returns the tools that can be sent to this API.

        Raises:
            UnsupportedError: A tool that its vendor runs must be called, or only such tools are offered.
        """
        if self.is_native:
            return list(known_tools(request.tools))
        tools = client_run_tools(request, f"a server of {self._dialect}")
        for tool in request.tools:
            if tool.kind != "function":
                self.dropped(tool.kind, f"tool {quote(tool.kind)}")
        return list(known_tools(tools))

    def is_strict(self, tool: Tool, target: Target) -> bool:
        """Returns whether the tool's schema is sent as strict; `target` describes what strict schemas may contain."""
        if self.is_native or not tool.strict:
            return False
        return self._is_binding(tool.parameters, target)

    def is_strict_reply(self, request: Request, target: Target) -> bool:
        """Returns whether the response schema is sent as strict; `target` as in `is_strict`."""
        return request.response_strict and self._is_binding(request.response_schema, target)

    def _is_binding(self, schema: JsonText, target: Target) -> bool:
        """Schemas from an OpenAI client are strict for OpenAI; others only if adapting them changes nothing."""
        if self._source in OPENAI_APIS or not target.required or not adapt(schema, target).changes:
            return True
        self.dropped("strict")
        return False

    def stop_locally(self, stop: Sequence[str]) -> bool:
        """Has the gateway search the response for stop strings that the server does not support or does not report.

        Returns whether there are any: such a response must be streamed, because text after a stop string is cut off.
        """
        self._stop_locally = tuple(stop)
        return bool(stop)

    def end_with_user(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Returns the messages with a final user message if they end with assistant text.

        Not every server continues assistant text. Messages from a client of this same API are returned unchanged.
        """
        ended = tuple(messages) if self.is_same_api else append_continue_prompt(messages)
        if len(ended) > len(messages):
            self.adapted("prefill", "the beginning of the answer is followed by a user message to continue it")
        return ended

    def native_fields(self, extra: ExtraFields) -> Mapping[str, msgspec.Raw]:
        """Returns the caller's own fields if they are in the terms of this API; otherwise reports them as dropped."""
        if self.is_native or not extra:
            return extra
        for name, raw in extra.items():
            name = _CALLER_NAMES.get(name, name.removeprefix("outer."))  # a dialect's own name for the position
            if name in _PARTLY_PARSED and bytes(raw).startswith(b"{"):
                members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
                self.native_fields(
                    {f"{name}.{inner}": x for inner, x in members.items() if inner != _PARTLY_PARSED[name]}
                )
            elif name not in _NOT_REPORTED and bytes(raw) != b"null":
                self.dropped(name)
        return {}

    def image_detail(self, extra: ExtraFields) -> dict[str, object]:
        """Returns the `detail` field of an image, between OpenAI's two APIs."""
        value = extra.get("detail")
        if value is None or bytes(value) == b'"auto"':
            return {}
        if self._source in OPENAI_APIS and self._dialect in OPENAI_APIS and bytes(value) in DETAILS:
            return {"detail": value}
        self.dropped("detail")
        return {}

    def dropped(self, name: str, reason: str = "") -> None:
        """Records content that this API cannot represent; `reason` describes it if the name is not sufficient."""
        self._dropped.setdefault(name, reason or name)

    def adapted(self, name: str, reason: str) -> None:
        """Records content that is represented differently, by its name."""
        self._reworded.setdefault(name, reason)

    def adapted_schema(self, schema: JsonText, target: Target, owner: str, *, always: bool = False) -> msgspec.Raw:
        """Returns the schema of a tool or of the response, adapted to the server.

        A schema from a client of this same API is not changed, because other servers than the vendor's use the API too

        Args:
            schema: The schema.
            target: What the server accepts.
            owner: What has the schema, for the report.
            always: Whether it is adapted for a client of this same API too, for APIs whose servers all have the same
                limits.
        """
        if self.is_same_api and not always:
            return msgspec.Raw(schema.encode())
        adapted = adapt(schema, target)
        if adapted.changes:
            self._adapted_schemas[owner] = adapted.changes
        return msgspec.Raw(adapted.json.encode())

    def unknown_part(self, part: UnknownPart) -> msgspec.Raw:
        """Returns the JSON of an unknown part, unchanged.

        Raises:
            UnsupportedError: The part belongs to another API.
        """
        if not self.is_native:
            raise self.unsendable(f"a part of type {quote(part.type)}", part.path)
        return part.raw

    def unsendable_part(self, part: Part) -> UnsupportedError:
        """Returns the error for a part that is not allowed in this message."""
        return self.unsendable(f"{_PART_NAMES.get(type(part), 'a part of this type')} in this message")

    def unsendable(self, what: str, path: str = "") -> UnsupportedError:
        """Returns the error for content that cannot be dropped without changing the meaning of the request."""
        return UnsupportedError(f"{what} cannot be sent on to a server of {self._dialect}", path)

    def close(self, body: Mapping[str, object]) -> UpstreamRequest:
        """Returns the upstream request with this body and the recorded notices."""
        if not (self._dropped or self._reworded or self._adapted_schemas):
            return UpstreamRequest(_encode(body), (), self._stop_locally)
        warnings = [
            *notices_by_name("content_dropped", f"{self._dialect} has no equivalent of: {{}}", self._dropped),
            *notices_by_name("request_adapted", f"for {self._dialect}: {{}}", self._reworded),
        ]
        if self._adapted_schemas:
            warnings.append(
                Notice("schema_adapted", f"for {self._dialect}: {summarize_changes(self._adapted_schemas)}")
            )
        return UpstreamRequest(_encode(body), tuple(warnings), self._stop_locally)
