"""Writes replies of Anthropic Messages, streamed and whole."""

from collections.abc import Mapping
from typing import Final, assert_never

import msgspec
from msgspec import Raw

from dragoman.core import errors, events, messages
from dragoman.core.collect import finish_reason
from dragoman.core.errors import DragomanError, RequestError, UnsupportedError
from dragoman.core.events import (
    NO_CHANGE,
    AnyEvent,
    Block,
    BlockChange,
    BlockKind,
    EventOrder,
    Finish,
    Start,
    ToolCallStart,
)
from dragoman.core.messages import Part, Reply, Request, Text, ToolCall, UnknownPart, Usage
from dragoman.core.response_details import CITATIONS, list_items
from dragoman.dialects.anthropic_messages.computer_toolset import toolset_names
from dragoman.text import json_cursor
from dragoman.wire import sse
from dragoman.wire.detail_fields import with_unmodelled_counts

_encode = msgspec.json.Encoder().encode

NAME: Final = "anthropic_messages"

_IN_DELTA: Final = ("container", "stop_details")
"""Details that the stream contains next to the stop reason."""
_STOP_REASONS: Final[dict[messages.FinishReason, str]] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
_DELTAS: Final[dict[BlockKind, bytes]] = {
    "text": b'{"type":"text_delta","text":',
    "refusal": b'{"type":"text_delta","text":',
    "reasoning": b'{"type":"thinking_delta","thinking":',
    "tool_call": b'{"type":"input_json_delta","partial_json":',
    "vendor": b'{"type":"input_json_delta","partial_json":',
}
_BLOCKS: Final[dict[BlockKind, bytes]] = {
    "text": b'{"type":"text","text":""}',
    "refusal": b'{"type":"text","text":""}',
    "reasoning": b'{"type":"thinking","thinking":"","signature":""}',
}


class MessagesResponseWriter:
    """Writes one streamed reply."""

    __slots__ = ("_delta", "_has_refusal", "_order", "_response_fields", "_sources", "_toolsets", "_usage")

    def __init__(self, request: Request) -> None:
        self._order = EventOrder(NAME)
        self._toolsets = toolset_names(request.tools)
        self._usage = Usage()
        self._has_refusal = False
        self._response_fields: dict[str, Raw] = {}
        self._sources: list[Raw] = []
        """Details of the next text."""
        self._delta = b""
        """Bytes before the JSON string of a delta of the open block."""

    def feed(self, event: AnyEvent) -> bytes:
        """Returns the bytes for this event.

        Raises:
            EventOrderError: A bug in the code that sent it.
        """
        step = self._order.feed(event)
        if step is NO_CHANGE and (
            type(event) is events.TextDelta or type(event) is events.ToolCallDelta
        ):  # most events
            return self._delta + _encode(event.text) + b"}}\n\n" if event.text else b""
        return self._feed(event, step)

    def _feed(self, event: AnyEvent, step: BlockChange) -> bytes:
        closes, opens, ends = step
        before = _stop(closes) if closes else b""
        if opens:
            before += self._open(opens, event)
        elif isinstance(event, events.VendorBlock | events.VendorBlockStart):
            return before
        match event:
            case events.TextDelta(text) | events.ToolCallDelta(_, text) | events.RefusalDelta(text):
                return before + self._delta + _encode(text) + b"}}\n\n" if text else before
            case events.ReasoningDelta(text, signature):
                return before + self._reasoning(text, signature)
            case ToolCallStart() | events.Notice() | events.VendorBlock() | events.VendorBlockStart():
                return before
            case events.Detail():
                return before + self._detail(event)
            case events.ToolCallEnd() | events.ToolCallIncomplete():
                return _stop(ends) if ends else b""
            case Start():
                self._usage = Usage(input_tokens=event.input_tokens)
                return _event("message_start", b'"message":' + _encode(_message_head(event, self._usage)))
            case events.UsageUpdate(usage):
                self._usage = usage
                return before
            case Finish():
                return before + self._finish(event)
            case events.Failure(error):
                return sse.encode(write_error(error), "error")
            case _:
                assert_never(event)

    def _open(self, block: Block, event: AnyEvent) -> bytes:
        self._has_refusal = self._has_refusal or block.kind == "refusal"
        self._delta = _index("content_block_delta", block) + b',"delta":' + _DELTAS[block.kind]
        shell, first_delta = b"", b""
        match event:
            case ToolCallStart(_, id, name):
                shell = _encode(_tool_use(ToolCall(id, name, "{}"), self._toolsets))
            case events.ReasoningDelta(redacted=data) if data:
                shell = _encode({"type": "redacted_thinking", "data": data})
            case events.VendorBlock(json=json) | events.VendorBlockStart(json=json):
                shell, first_delta = self._vendor(json)
            case _:
                shell = _BLOCKS[block.kind]
        block_start = (
            _index("content_block_start", block) + b',"content_block":' + sse.one_line(shell) + b"}\n\n" + first_delta
        )
        return block_start + self._cited() if block.kind == "text" else block_start

    def _detail(self, event: events.Detail) -> bytes:
        if event.dialect != NAME or event.name == events.TEXT_BREAK:
            return b""
        if event.name != CITATIONS:
            self._response_fields[event.name] = Raw(event.json.encode())
            return b""
        self._sources += list_items(Raw(event.json.encode()))
        return self._cited() if self._order.is_text else b""

    def _cited(self) -> bytes:
        """Returns the waiting sources, for the open text."""
        sources, self._sources = self._sources, []
        head = self._delta.removesuffix(_DELTAS["text"])
        return b"".join(head + _encode({"type": "citations_delta", "citation": each}) + b"}\n\n" for each in sources)

    def _vendor(self, json: messages.JsonText) -> tuple[bytes, bytes]:
        """Returns the events of a vendor's block: the block without its input, then the input as a delta."""
        fields = json_cursor.parse(json).fields()
        input = fields.pop("input")
        if input is None:
            return json.encode(), b""
        return _encode({**fields.remaining(), "input": {}}), self._delta + _encode(input.text) + b"}}\n\n"

    def _reasoning(self, text: str, signature: str) -> bytes:
        events = self._delta + _encode(text) + b"}}\n\n" if text else b""
        if signature:
            head = self._delta.removesuffix(_DELTAS["reasoning"])
            events += head + b'{"type":"signature_delta","signature":' + _encode(signature) + b"}}\n\n"
        return events

    def _finish(self, event: Finish) -> bytes:
        end = _end(finish_reason(event, self._order), event.stop_sequence, self._has_refusal)
        inner = {name: raw for name, raw in self._response_fields.items() if name in _IN_DELTA}
        outer = {name: raw for name, raw in self._response_fields.items() if name not in _IN_DELTA}
        delta = b'"delta":' + _encode(end | inner) + b',"usage":' + _encode(_usage(self._usage))
        delta += b"," + _encode(outer)[1:-1] if outer else b""
        return _event("message_delta", delta) + _event("message_stop")


def _event(kind: str, members: bytes = b"") -> bytes:
    return sse.encode(b'{"type":"%s"%s}' % (kind.encode(), b"," + members if members else b""), kind)


def _index(kind: str, block: Block) -> bytes:
    """Returns the bytes before the fields of a block's event."""
    return sse.encode(b'{"type":"%s","index":%d' % (kind.encode(), block.number), kind).removesuffix(b"\n\n")


def _stop(block: Block) -> bytes:
    return _index("content_block_stop", block) + b"}\n\n"


def _message_head(reply: Reply | Start, usage: Usage) -> dict[str, object]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _end(finish: messages.FinishReason, stop_sequence: str, has_refusal: bool) -> dict[str, object]:
    reason = "refusal" if has_refusal and finish != "length" else _STOP_REASONS[finish]
    return {"stop_reason": reason, "stop_sequence": stop_sequence or None if reason == "stop_sequence" else None}


def _usage(usage: Usage) -> dict[str, object]:
    counts: dict[str, object] = {
        "input_tokens": max(0, usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return with_unmodelled_counts(counts, usage, NAME)


def write_reply(reply: Reply, request: Request) -> bytes:
    """Returns the body of a whole reply."""
    has_refusal = any(isinstance(part, messages.Refusal) for part in reply.parts)
    toolsets = toolset_names(request.tools)
    blocks = [block for part in reply.parts for block in _block(part, toolsets)]
    end = _end(reply.finish_reason, reply.stop_sequence, has_refusal)
    return _encode({**_message_head(reply, reply.usage), "content": blocks, **end, **reply.details})


def write_count(tokens: int, cleared: int | None = None) -> bytes:
    """Returns the body of a token count; `cleared` tokens were removed by context edits."""
    edits = {} if cleared is None else {"context_management": {"original_input_tokens": tokens + cleared}}
    return _encode({"input_tokens": tokens, **edits})


def _tool_use(call: ToolCall, toolsets: Mapping[str, str]) -> dict[str, object]:
    toolset = {"toolset_name": toolsets[call.name]} if call.name in toolsets else {}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": input_of(call.arguments), **toolset}


def _block(part: Part, toolsets: Mapping[str, str]) -> list[object]:
    match part:
        case Text(text, extra) | messages.Refusal(text, extra):
            cited = {CITATIONS: extra[CITATIONS]} if CITATIONS in extra else {}
            return [{"type": "text", "text": text, **cited}]
        case messages.Reasoning(redacted=data) if data:
            return [{"type": "redacted_thinking", "data": data}]
        case messages.Reasoning(text, signature):
            return [{"type": "thinking", "thinking": text, "signature": signature}]
        case ToolCall():
            return [_tool_use(part, toolsets)]
        case UnknownPart(raw=raw, dialect=dialect):
            return [raw] if dialect == NAME else []
        case (
            messages.Image()
            | messages.Document()
            | messages.Audio()
            | messages.ToolResult()
            | messages.PreviousResponseRef()
        ):
            return []  # no event produces these
        case _:
            assert_never(part)


def input_of(arguments: messages.JsonText) -> object:
    """Returns the arguments as the input of a block."""
    try:
        return msgspec.Raw(json_cursor.parse(arguments.encode()).object())
    except RequestError:
        return {"__unparsedToolInput": {"raw": arguments}}


# Errors

_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UPSTREAM: Final = {400: 400, 413: 413, 422: 400, 429: 429, 503: 529, 529: 529}
"""HTTP status for an upstream status; any other (such as a rejected API key of the gateway) becomes 502."""


def status(error: DragomanError) -> int:
    """Returns the HTTP status for an error that occurs before the response has begun."""
    if isinstance(error, errors.UpstreamError) and error.status is not None:
        return _UPSTREAM.get(error.status, error.status_hint)
    if isinstance(error, errors.BudgetExceededError):
        return 402
    return 529 if isinstance(error, errors.BackendUnavailableError) else error.status_hint


def write_error(error: DragomanError) -> bytes:
    """Returns the body of an error response."""
    number = status(error)
    body: dict[str, object] = {
        "type": _TYPES.get(number, "api_error" if number >= 500 else "invalid_request_error"),
        "message": error.message,
    }
    if isinstance(error, UnsupportedError) and error.path == "$.thread":
        body["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return _encode({"type": "error", "error": body})


PING: Final = _event("ping")
"""Event that keeps an idle stream open."""
