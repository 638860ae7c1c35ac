"""Reads responses of upstream servers of Responses.

Supported variants, streamed or whole:

    text          in deltas; `….done`, `response.output_item.done` and the last event add only new text, so arguments
                  only in `….done` (LM Studio, small Codex models) and items only in `response.completed` are read too
    an item       found by `item_id`, else by `output_index`, else the last of its type; both are optional, as is
                  `response.output_item.added`. The last event may have other ids than the stream (vLLM): then only
                  items of types that were not streamed are read from it
    call_id       the item's `id` if missing; arguments may be an object
    namespace     a tool in one is offered under both names (`request_reader`)
    custom tools  their input becomes the only string argument
    reasoning     `reasoning_text` (gpt-oss, vLLM, LM Studio) or `reasoning_summary_text`, parts of a summary as
                  paragraphs; of both, the first. `encrypted_content` is the proof (`request_writer.proof`)
    other items   are the vendor's own (`web_search_call`, `mcp_call`) and forwarded whole when they are done
    the end       `response.completed`, `response.incomplete` or `response.failed`, `[DONE]`; else it broke off
A response is incomplete for its `max_output_tokens` ("length") or its `content_filter`; any other reason is "length".

Source: https://platform.openai.com/docs/api-reference/responses-streaming and the types in the openai package 3.52;
https://github.com/vllm-project/vllm/pull/29947, https://github.com/BerriAI/litellm/issues/27144,
https://lmstudio.ai/blog/lmstudio-v0.3.29, https://docs.ollama.com/api/openai-compatibility,
https://github.com/exo-explore/exo (src/exo/master/adapters/responses.py), 2026-11.
"""

from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from dragoman.core.backend import ExchangeContext
from dragoman.core.errors import UpstreamError, quote
from dragoman.core.events import TEXT_BREAK
from dragoman.core.identifiers import NAME_FORM
from dragoman.core.messages import FinishReason, Request
from dragoman.core.response_details import ANNOTATIONS, LOGPROBS, PHASE
from dragoman.dialects.openai_responses.output_item import OutputItem
from dragoman.dialects.openai_responses.request_reader import JOINT, NAME, REDACTED
from dragoman.dialects.openai_responses.request_writer import proof
from dragoman.dialects.openai_responses.response_usage import read_usage
from dragoman.schema.free_text import INPUT
from dragoman.text import json_cursor, lenient_values
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.detail_fields import logprobs_json
from dragoman.wire.response_reader import DECODE_ERRORS, BaseResponseReader, new_assembler
from dragoman.wire.upstream_errors import error_from_body, error_from_event

_CONTENT_EVENTS: Final = {
    "response.output_text": ("message", "text", "text"),
    "response.refusal": ("message", "refusal", "refusal"),
    "response.reasoning_text": ("reasoning", "text", "text"),
    "response.reasoning_summary_text": ("reasoning", "summary", "text"),
    "response.function_call_arguments": ("function_call", "arguments", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input", "input"),
}
"""Prefixes of event names with content: the item type, the place in the item, and the name of the whole text."""
_KINDS: Final = frozenset(kind for kind, _, _ in _CONTENT_EVENTS.values())
"""Item types with events of their own; all others belong to the vendor."""
_KIND_BY_FIELD: Final = {"arguments": "function_call", "content": "message", "summary": "reasoning"}
_CALLS: Final = ("function_call", "custom_tool_call")
_PLACES: Final = {"output_text": "text", "text": "text", "refusal": "refusal"}
"""Types of message parts, and the fields that contain their text."""
_REASONS: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_OPENER: Final = f'{{"{INPUT}": "'
_CLOSER: Final = '"}'

_encode = msgspec.json.Encoder().encode


class _ContentDelta(Struct):
    """Fast path for most events, in a tenth of the time; anything else does not match this type."""

    type: Literal["response.output_text.delta", "response.function_call_arguments.delta"]
    delta: str
    item_id: str = ""
    output_index: int | None = None
    logprobs: list[Raw] | None = None
    error: None = None


_decode_delta: Final = msgspec.json.Decoder(_ContentDelta).decode


class ResponsesResponseReader(BaseResponseReader):
    """Reads one response."""

    __slots__ = ("_by_id", "_by_index", "_items", "_latest", "_reason")

    def __init__(self, request: Request, context: ExchangeContext) -> None:
        super().__init__(new_assembler(request, context, NAME, NAME_FORM))
        self._reason: FinishReason | None = None
        self._items: list[OutputItem] = []
        self._by_id: dict[str, OutputItem] = {}
        self._by_index: dict[int, OutputItem] = {}
        self._latest: dict[str, OutputItem] = {}

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason)
        return True

    def _quick(self, data: bytes) -> bool:
        try:
            event = _decode_delta(data)
        except DECODE_ERRORS:
            return False
        if event.logprobs:
            return False
        kind, place, _ = _CONTENT_EVENTS[event.type.removesuffix(".delta")]
        item = self._find_item(kind, event.item_id, event.output_index)
        self._add_text(item or self._opened(kind, event.item_id, event.output_index), place, event.delta)
        return True

    def _frame(self, fields: Fields) -> None:
        kind = lenient_values.string(fields.pop("type")) or self._event_name
        base, _, step = kind.rpartition(".")
        if base in _CONTENT_EVENTS and step in ("delta", "done"):
            self._content_event(base, step, fields)
            return
        match kind:
            case "response.created" | "response.in_progress" | "response.queued":
                self._out.start()
            case "response.output_text.annotation.added":
                id, index = (
                    lenient_values.string(fields.pop("item_id")),
                    lenient_values.integer(fields.pop("output_index")),
                )
                item = self._find_item("message", id, index) or self._opened("message", id, index)
                for source in lenient_values.objects(fields.pop("annotation")):
                    self._cite(item, source)
            case "response.output_item.added":
                self._added(fields.pop("item"), lenient_values.integer(fields.pop("output_index")))
            case "response.output_item.done":
                self._done(fields.pop("item"), lenient_values.integer(fields.pop("output_index")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._read_unstreamed(lenient_values.fields(fields.pop("response")) or fields, step)
                self._finish(done=True)
            case "error":
                raise error_from_body(fields)

    def _read_unstreamed(self, response: Fields, state: str = "") -> None:
        """Reads the whole response; `state` is the status by its event."""
        if (error := error_from_event(response)) is not None:
            raise error
        state = state or lenient_values.string(response.pop("status")) or "completed"
        streamed_kinds = frozenset(item.kind for item in self._items if item.has_content)
        output = response.pop("output")
        if output is None and not streamed_kinds and state == "completed":
            raise UpstreamError("expected output in the server's response, got none")
        self._out.start()
        items = lenient_values.items(output)
        for index, cursor in enumerate(items):
            self._last(cursor, index, streamed_kinds, cut=state == "incomplete" and index == len(items) - 1)
        if state == "completed":
            for item in self._items:
                self._close_input(item)
        if (tier := response.pop("service_tier")) is not None:
            self._out.detail("service_tier", tier.text)
        if (usage := lenient_values.fields(response.pop("usage"))) is not None:
            self._out.usage(read_usage(usage))
        self._reason = self._finish_reason(state, response.pop("incomplete_details"))

    def _finish_reason(self, state: str, details: Cursor | None) -> FinishReason:
        if state in ("failed", "cancelled"):
            raise UpstreamError(f"the server's response ended as {state!r}, without a reason")
        if state == "completed":
            return "stop"
        if state != "incomplete" and not self._items:
            raise UpstreamError(f"expected a whole response of the server, got one that is {quote(state)}")
        why = lenient_values.fields(details)
        reason = lenient_values.string(why.pop("reason")) if why is not None else ""
        if reason not in _REASONS:
            reported = quote(reason) if state == "incomplete" else f"not complete, but {quote(state)}"
            self._out.warn("unknown_finish", f"the response is incomplete for {reported}; it is treated as 'length'")
        return _REASONS.get(reason, "length")

    # Items

    def _added(self, value: Cursor | None, index: int | None) -> None:
        self._out.start()
        fields = lenient_values.fields(value)
        if fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        if kind not in _KINDS or id in self._by_id:
            return
        item = self._opened(kind, id, index)
        self._name(item, fields)
        self._phase(item, fields)

    def _opened(self, kind: str, id: str, index: int | None) -> OutputItem:
        item = OutputItem(kind, len(self._items), id, index)
        if kind == "message" and any(each.has_phase for each in self._items):
            self._out.detail(TEXT_BREAK, "", NAME)
        self._items.append(item)
        self._latest[kind] = item
        if id:
            self._by_id[id] = item
        if index is not None:
            self._by_index[index] = item
        return item

    def _find_item(self, kind: str, id: str, index: int | None) -> OutputItem | None:
        """Returns the item that is meant; the last of its type if the server does not identify it."""
        for named in (self._by_id.get(id), self._by_index.get(-1 if index is None else index)):
            if named is not None and named.kind == kind:
                return named
        last = self._latest.get(kind)
        if last is None or last.done or (id and last.id) or (index is not None and last.index is not None):
            return None
        return last

    def _last(self, cursor: Cursor, index: int, streamed_kinds: frozenset[str], *, cut: bool) -> None:
        """Reads an item of the last event or of a whole body."""
        fields = lenient_values.fields(cursor)
        if fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        known = self._by_id.get(id) or (None if id else self._by_index.get(index))
        if known is not None and known.kind == kind:
            self._complete(known, cursor, cut=cut)
        elif kind not in streamed_kinds:
            self._complete(self._opened(kind, id, None), cursor, cut=cut)

    def _done(self, cursor: Cursor | None, index: int | None) -> None:
        self._out.start()
        fields = lenient_values.fields(cursor)
        if cursor is None or fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        item = self._find_item(kind, id, index) or self._opened(kind, id, index)
        self._complete(item, cursor, cut=False)

    def _complete(self, item: OutputItem, cursor: Cursor, *, cut: bool) -> None:
        """Emits the content of an item that was not emitted before."""
        fields = cursor.fields()
        match item.kind:
            case "message":
                self._phase(item, fields)
                self._message(item, fields.pop("content"))
            case "reasoning":
                self._reasoning(item, fields)
            case "function_call" | "custom_tool_call":
                self._call(item, fields, cut=cut or lenient_values.string(fields.pop("status")) == "incomplete")
            case kind if not item.done:
                self._out.vendor(NAME, kind, cursor.text)
        item.done = True

    def _message(self, item: OutputItem, content: Cursor | None) -> None:
        texts = {"text": "", "refusal": ""}
        for cursor in lenient_values.items(content):
            part = lenient_values.fields(cursor)
            if part is None:
                texts["text"] += lenient_values.string(cursor)
                self._add_text(item, "text", item.rest("text", texts["text"], part=False))
                continue
            place = _PLACES.get(lenient_values.string(part.pop("type")) or "text", "")
            if not place:
                self._unknown("part", cursor)
                continue
            texts[place] += lenient_values.string(part.pop(place))
            self._add_text(item, place, item.rest(place, texts[place], part=False))
            entries, sources = (
                lenient_values.objects(part.pop("logprobs")),
                lenient_values.objects(part.pop("annotations")),
            )
            if entries and not item.is_probable:
                self._log(item, entries)
            if not item.done:
                for source in sources[item.sources :]:
                    self._cite(item, source)

    def _phase(self, item: OutputItem, fields: Fields) -> None:
        """Begins a new text for a message with a phase."""
        phase = fields.pop(PHASE)
        if item.kind != "message" or item.has_phase or phase is None:
            return
        item.has_phase = True
        if not item.received:
            self._out.detail(TEXT_BREAK, "", NAME)
        self._out.detail(PHASE, phase.text, NAME)

    def _log(self, item: OutputItem, entries: list[Fields]) -> None:
        item.is_probable = True
        self._out.detail(LOGPROBS, logprobs_json(entries))

    def _cite(self, item: OutputItem, source: Fields) -> None:
        """Emits a source: Chat Completions has `url_citation` too."""
        item.sources += 1
        shared = lenient_values.string(source.get("type")) == "url_citation"
        self._out.detail(ANNOTATIONS, f"[{bytes(source.raw).decode()}]", "" if shared else NAME)

    def _reasoning(self, item: OutputItem, fields: Fields) -> None:
        wholes = {
            place: "\n\n".join(
                lenient_values.string(part.pop("text")) for part in lenient_values.objects(fields.pop(name))
            )
            for place, name in (("text", "content"), ("summary", "summary"))
        }
        place = item.place or ("text" if wholes["text"] else "summary")
        self._add_text(item, place, item.rest(place, wholes.pop(place), part=False))
        (other,) = wholes.values()
        if other and not item.done:
            self._out.warn("unknown_block", "reasoning came whole and as a summary; one of them was dropped", other)
        encrypted = lenient_values.string(fields.pop("encrypted_content"))
        if encrypted and not item.done:
            redacted = encrypted.removeprefix(REDACTED) if encrypted.startswith(REDACTED) else ""
            self._out.reasoning("", "" if redacted else proof(item.id, encrypted), redacted)

    def _call(self, item: OutputItem, fields: Fields, *, cut: bool) -> None:
        self._name(item, fields)
        place = "input" if item.kind == "custom_tool_call" else "arguments"
        if (full_value := fields.pop(place)) is not None:
            self._add_text(item, place, item.rest(place, lenient_values.string_or_json(full_value), part=False))
        if not cut:
            self._close_input(item)
            self._out.end_call(item.key)

    def _name(self, item: OutputItem, fields: Fields) -> None:
        name, space = lenient_values.string(fields.pop("name")), lenient_values.string(fields.pop("namespace"))
        if item.kind in _CALLS and name and not item.named:
            item.named = True
            id = lenient_values.string(fields.pop("call_id")) or item.id
            self._out.call(item.key, id, f"{space}{JOINT}{name}" if space else name, "", named=True)

    def _unknown(self, what: str, cursor: Cursor) -> None:
        self._out.warn("unknown_block", f"{what} of the server's answer was dropped, as it has no event", cursor.text)

    # Words

    def _content_event(self, base: str, step: str, fields: Fields) -> None:
        kind, place, name = _CONTENT_EVENTS[base]
        id, index = lenient_values.string(fields.pop("item_id")), lenient_values.integer(fields.pop("output_index"))
        item = self._find_item(kind, id, index) or self._opened(kind, id, index)
        if place == "summary":
            self._paragraph(item, lenient_values.integer(fields.pop("summary_index")) or 0)
        if step == "delta":
            self._add_text(item, place, lenient_values.string_or_json(fields.pop("delta")))
            if entries := lenient_values.objects(fields.pop("logprobs")):
                self._log(item, entries)
            return
        self._name(item, fields)
        if (full_value := fields.pop(name)) is not None:
            self._add_text(item, place, item.rest(place, lenient_values.string_or_json(full_value), part=True))
        self._close_input(item)

    def _paragraph(self, item: OutputItem, part: int) -> None:
        """Separates the parts of a summary."""
        if part > item.part and item.received:
            self._add_text(item, "summary", "\n\n")
            item.done_chars["summary"] = len("".join(item.received.get("summary", ())))
        item.part = max(item.part, part)

    def _add_text(self, item: OutputItem, place: str, text: str) -> None:
        if item.kind == "reasoning":
            item.place = item.place or place
        if not text or (item.place and item.place != place):
            return
        pieces = item.received.setdefault(place, [])
        pieces.append(text)
        match place:
            case "arguments":
                self._out.call(item.key, "", "", text)
            case "input":
                opener = _OPENER if len(pieces) == 1 else ""
                self._out.call(item.key, "", "", opener + _encode(text).decode()[1:-1])
            case "refusal":
                self._out.refusal(text)
            case "text" if item.kind == "message":
                self._out.text(text)
            case _:
                self._out.reasoning(text)

    def _close_input(self, item: OutputItem) -> None:
        """Emits the complete input of a custom tool, and ends the string that contains it."""
        if item.kind == "custom_tool_call" and not item.closed:
            item.closed = True
            self._out.call(item.key, "", "", _CLOSER if item.received else _OPENER + _CLOSER)


def _kind_of(fields: Fields) -> str:
    """Returns the type of an item; if missing, by a field that only one type has."""
    kind = lenient_values.string(fields.pop("type"))
    return kind or next((kind for name, kind in _KIND_BY_FIELD.items() if fields.get(name) is not None), "")


def count_of(body: bytes) -> int:
    """Returns the count in a token count response.

    Raises:
        RequestError: The response contains no count.
    """
    return json_cursor.parse(body).fields().require("input_tokens").integer(minimum=0)
