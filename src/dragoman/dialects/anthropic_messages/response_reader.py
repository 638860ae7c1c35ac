"""Reads responses of an upstream server of Messages.

Supported variants, streamed or whole:

    input         in deltas, or whole in `content_block_start` (some servers that imitate the API)
    blocks        ended by `content_block_stop`, or by the next event; a missing `index` means the last block
    usage         in `message_start`, updated by `message_delta`, whose counts replace earlier ones
    the end       `message_stop`, or the end of the stream after a stop reason; else the stream broke off
    types         of events, blocks and deltas: if missing, the event's name or the fields determine them

An input of `{"__unparsedToolInput": {"raw": "…"}}` was cut off, as `response_writer` writes it.
Cached parts of the prompt, read or written, count as input. Blocks of the vendor's own tools (`server_tool_use`,
`web_search_tool_result`) are forwarded whole, for clients of this API. `model_context_window_exceeded` is "length".

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming,
https://docs.anthropic.com/en/api/handling-stop-reasons (2026-11).
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import UpstreamError, quote
from dragoman.core.events import TEXT_BREAK
from dragoman.core.identifiers import LONG_NAME_FORM
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.core.response_details import CITATIONS
from dragoman.dialects.anthropic_messages.request_writer import NAME
from dragoman.text import json_cursor, lenient_values
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.detail_fields import unmodelled_counts
from dragoman.wire.response_reader import DECODE_ERRORS, BaseResponseReader, new_assembler

_FINISH: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "pause_turn": "pause",
}


_FACTS: Final = ("container", "context_management", "stop_details")
"""Fields of a message other than its content."""
_COUNTS: Final = {
    "input_tokens": (),
    "output_tokens": (),
    "cache_creation_input_tokens": (),
    "cache_read_input_tokens": (),
    "output_tokens_details": ("thinking_tokens",),
}
"""Fields of usage that `Usage` models."""
_BLOCKS: Final = {"text": "text", "thinking": "thinking", "input": "tool_use", "name": "tool_use"}
_DELTAS: Final = {
    "text": "text_delta",
    "partial_json": "input_json_delta",
    "thinking": "thinking_delta",
    "signature": "signature_delta",
}
"""Types of blocks and deltas by a field that only one type has."""


class _Text(Struct, forbid_unknown_fields=True, tag="text_delta"):
    text: str


class _Thinking(Struct, forbid_unknown_fields=True, tag="thinking_delta"):
    thinking: str


class _Input(Struct, forbid_unknown_fields=True, tag="input_json_delta"):
    partial_json: str


class _Delta(Struct):
    """Fast path for most events, in a tenth of the time; anything else does not match this type."""

    type: Literal["content_block_delta"]
    index: int
    delta: _Text | _Thinking | _Input
    error: None = None


_delta: Final = msgspec.json.Decoder(_Delta).decode


class MessagesResponseReader(BaseResponseReader):
    """Reads one response."""

    __slots__ = ("_counts", "_extra", "_index", "_is_cited", "_reason", "_stop", "_vendors")

    def __init__(self, request: Request, context: ExchangeContext) -> None:
        super().__init__(new_assembler(request, context, NAME, LONG_NAME_FORM))
        self._reason: FinishReason | None = None
        self._stop = ""
        self._counts: dict[str, int] = {}
        self._extra: dict[str, Raw] = {}
        """Fields of usage that `Usage` does not model."""
        self._is_cited = False
        """The open text has sources."""
        self._index = 0
        self._vendors: dict[int, tuple[str, Cursor, list[str]]] = {}
        """Open blocks of the vendor's own tools: type, first event, chunks of their input."""

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason, self._stop)
        return True

    def _quick(self, data: bytes) -> bool:
        try:
            event = _delta(data)
        except DECODE_ERRORS:
            return False
        self._index = event.index
        delta = event.delta
        if type(delta) is _Text:
            self._out.text(delta.text)
        elif type(delta) is _Thinking:
            self._out.reasoning(delta.thinking)
        elif type(delta) is _Input and event.index not in self._vendors:
            self._out.call(event.index, "", "", delta.partial_json)
        else:
            return False
        return True

    def _frame(self, fields: Fields) -> None:
        match lenient_values.string(fields.pop("type")) or self._event_name:
            case "message_start":
                message = lenient_values.fields(fields.pop("message")) or fields
                self._count(message.pop("usage"))
                self._out.start(self._input_tokens())
                self._carry(message)
            case "content_block_start":
                self._out.start()
                self._block(self._at(fields), fields.pop("content_block"))
            case "content_block_delta":
                self._delta(self._at(fields), fields.pop("delta"))
            case "content_block_stop":
                self._stop_block(self._at(fields))
            case "message_delta":
                delta = lenient_values.fields(fields.pop("delta")) or fields
                self._stopped(delta)
                self._carry(delta)
                self._carry(fields)
                self._count(fields.pop("usage"))
                self._out.usage(self._usage())
            case "message_stop":
                self._finish(done=True)

    def _read_unstreamed(self, message: Fields) -> None:
        content = message.pop("content")
        if content is None:
            raise UpstreamError("expected content in the server's message, got none")
        self._count(message.pop("usage"))
        self._out.start(self._input_tokens())
        self._out.usage(self._usage())
        for index, block in enumerate(lenient_values.items(content)):
            self._block(index, block)
            self._stop_block(index)
        self._carry(message)
        self._stopped(message)

    def _carry(self, fields: Fields) -> None:
        for name in _FACTS:
            if (value := fields.pop(name)) is not None:
                self._out.detail(name, value.text, NAME)

    def _at(self, fields: Fields) -> int:
        index = lenient_values.integer(fields.pop("index"))
        self._index = self._index if index is None else index
        return self._index

    def _block(self, index: int, value: Cursor | None) -> None:
        block = lenient_values.fields(value)
        if value is None or block is None:
            self._out.text(lenient_values.string(value))
            return
        match lenient_values.string(block.pop("type")) or _kind_of(block, _BLOCKS):
            case "text":
                sources = block.pop("citations")
                if sources is not None:
                    self._separate_text()
                self._out.text(lenient_values.string(block.pop("text")))
                for each in lenient_values.objects(sources):
                    self._cite(each)
            case "thinking":
                self._out.reasoning(
                    lenient_values.string(block.pop("thinking")), lenient_values.string(block.pop("signature"))
                )
            case "tool_use":
                self._out.end_call(index)  # from a server that gives all blocks the same index
                id, name = lenient_values.string(block.pop("id")), lenient_values.string(block.pop("name"))
                self._out.call(index, id, name, _input(block.pop("input")), named=True)
            case "redacted_thinking":
                self._out.reasoning("", redacted=lenient_values.string(block.pop("data")))
            case kind:
                self._vendors[index] = (kind, value, [])

    def _separate_text(self) -> None:
        """Begins a new text block for the next text, because it has sources of its own."""
        self._out.detail(TEXT_BREAK, "", NAME)
        self._is_cited = False

    def _cite(self, source: Fields) -> None:
        self._out.detail(CITATIONS, f"[{bytes(source.raw).decode()}]", NAME)
        self._is_cited = True

    def _stop_block(self, index: int) -> None:
        self._out.end_call(index)
        if self._is_cited:
            self._separate_text()
        if index in self._vendors:
            kind, block, pieces = self._vendors.pop(index)
            input_json = "".join(pieces)
            input = {"input": json_cursor.parse(input_json).raw} if input_json.strip() else {}
            block_json = msgspec.json.encode({**block.fields().remaining(), **input}) if input else bytes(block.raw)
            self._out.vendor(NAME, kind, block_json.decode())

    def _delta(self, index: int, value: Cursor | None) -> None:
        delta = lenient_values.fields(value)
        if delta is None:
            self._out.text(lenient_values.string(value))
            return
        match lenient_values.string(delta.pop("type")) or _kind_of(delta, _DELTAS):
            case "text_delta":
                self._out.text(lenient_values.string(delta.pop("text")))
            case "thinking_delta":
                self._out.reasoning(lenient_values.string(delta.pop("thinking")))
            case "signature_delta":
                self._out.reasoning("", lenient_values.string(delta.pop("signature")))
            case "citations_delta" if (source := lenient_values.fields(delta.pop("citation"))) is not None:
                self._cite(source)
            case "input_json_delta" if index in self._vendors:
                self._vendors[index][2].append(lenient_values.string_or_json(delta.pop("partial_json")))
            case "input_json_delta":
                self._out.call(index, "", "", lenient_values.string_or_json(delta.pop("partial_json")))
            case kind:
                self._out.warn("unknown_block", f"a delta of type {quote(kind)} was dropped", bytes(delta.raw).decode())

    def _stopped(self, fields: Fields) -> None:
        reason, stop = (
            lenient_values.string_or_json(fields.pop("stop_reason")),
            lenient_values.string(fields.pop("stop_sequence")),
        )
        if not reason:
            return
        if reason not in _FINISH:
            self._out.warn("unknown_finish", f"the server ended with {quote(reason)}; it is treated as 'stop'")
        if self._reason not in ("length", "content_filter"):
            self._reason, self._stop = _FINISH.get(reason, "stop"), stop

    def _count(self, value: Cursor | None) -> None:
        counts = lenient_values.fields(value)
        if counts is None:
            return
        if reasoning_tokens := lenient_values.count_at(counts, "output_tokens_details", "thinking_tokens"):
            self._counts["thinking_tokens"] = reasoning_tokens
        self._extra.update(unmodelled_counts(counts, _COUNTS))
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"):
            if (count := lenient_values.token_count(counts.pop(name))) is not None:
                self._counts[name] = count

    def _input_tokens(self) -> int:
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return sum(self._counts.get(name, 0) for name in names)

    def _usage(self) -> Usage:
        return Usage(
            input_tokens=self._input_tokens(),
            output_tokens=self._counts.get("output_tokens", 0),
            cached_input_tokens=self._counts.get("cache_read_input_tokens", 0),
            cache_write_tokens=self._counts.get("cache_creation_input_tokens", 0),
            reasoning_tokens=self._counts.get("thinking_tokens", 0),
            extra=dict(self._extra),
            dialect=NAME if self._extra else "",
        )


def _kind_of(fields: Fields, kinds: Mapping[str, str]) -> str:
    """Returns the type of a block or delta without `type`, by a field that only one type has."""
    return next((kind for name, kind in kinds.items() if fields.get(name) is not None), "")


def _input(value: Cursor | None) -> str:
    """Returns the arguments in the start of a block; an empty object there means none."""
    fields = lenient_values.fields(value)
    if value is None or fields is None:
        return lenient_values.string_or_json(value)
    if not fields.remaining():
        return ""
    cut = fields.pop("__unparsedToolInput")
    return value.text if cut is None else cut.fields().string("raw")


def count_of(body: bytes) -> int:
    """Returns the count in a token count response.

    Raises:
        RequestError: The response contains no count.
    """
    return json_cursor.parse(body).fields().require("input_tokens").integer(minimum=0)
