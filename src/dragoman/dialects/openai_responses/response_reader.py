"""Responses of a server behind, to events.

Read as servers of this API send it, streamed or whole:

    words         in deltas; what `….done`, `response.output_item.done` and the last event repeat adds only what has not
                  come before, so that arguments that are only in `….done` (LM Studio, small Codex models), a whole that
                  comes once, or items that only `response.completed` has are read too
    an item       found by `item_id`, else by `output_index`, else the last of its kind; neither has to be there, nor
                  has `response.output_item.added`. The last event may give other ids than the stream (vLLM): what it
                  holds is then read only of the kinds of which the stream said nothing
    call_id       the item's `id` where it is missing; arguments may be an object
    namespace     a tool in one is offered under both names (`request_reader`)
    custom tools  what they are given becomes the one string of their arguments
    thoughts      `reasoning_text` (gpt-oss, vLLM, LM Studio) or `reasoning_summary_text`, parts of a summary as
                  paragraphs; where both come, the first. `encrypted_content` is their proof (`request_writer.proof`)
    other items   are the vendor's own (`web_search_call`, `mcp_call`) and passed on whole, once they are done
    the end       `response.completed`, `response.incomplete` or `response.failed`, `[DONE]`; without one it broke off
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
from dragoman.core.messages import FinishReason, Request, Usage
from dragoman.core.response_details import ANNOTATIONS, LOGPROBS, PHASE
from dragoman.dialects.openai_responses.request_reader import JOINT, NAME, REDACTED
from dragoman.dialects.openai_responses.request_writer import proof
from dragoman.schema.free_text import INPUT
from dragoman.text import json_cursor, lenient_values
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.detail_fields import logprobs_json, unmodelled_counts
from dragoman.wire.response_reader import DECODE_ERRORS, BaseResponseReader, new_assembler
from dragoman.wire.upstream_errors import error_from_body, error_from_event

_WORDS: Final = {
    "response.output_text": ("message", "text", "text"),
    "response.refusal": ("message", "refusal", "refusal"),
    "response.reasoning_text": ("reasoning", "text", "text"),
    "response.reasoning_summary_text": ("reasoning", "summary", "text"),
    "response.function_call_arguments": ("function_call", "arguments", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input", "input"),
}
"""What begins the names of events that say something: the kind of item, the place in it, and the whole's name."""
_KINDS: Final = frozenset(kind for kind, _, _ in _WORDS.values())
"""Kinds of items that have events of ours; all others are the vendor's."""
_COUNTS: Final = {
    "input_tokens": (),
    "output_tokens": (),
    "total_tokens": (),
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
"""What of a usage has a place in the values."""
_TOLD_BY: Final = {"arguments": "function_call", "content": "message", "summary": "reasoning"}
_CALLS: Final = ("function_call", "custom_tool_call")
_PLACES: Final = {"output_text": "text", "text": "text", "refusal": "refusal"}
"""Types of the parts of a message, and where their words stand."""
_REASONS: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}
_OPENER: Final = f'{{"{INPUT}": "'
_CLOSER: Final = '"}'

_encode = msgspec.json.Encoder().encode


class _Words(Struct):
    """What most events are, read in a tenth of the time; nothing else fits into it."""

    type: Literal["response.output_text.delta", "response.function_call_arguments.delta"]
    delta: str
    item_id: str = ""
    output_index: int | None = None
    logprobs: list[Raw] | None = None
    error: None = None


_words: Final = msgspec.json.Decoder(_Words).decode


class _Item:
    """One item of the output, as far as it has come."""

    __slots__ = (
        *("closed", "done", "has_phase", "id", "index", "is_probable", "key", "kind", "named", "part", "place", "said"),
        *("sources", "told"),
    )

    def __init__(self, kind: str, key: int, id: str, index: int | None) -> None:
        self.kind, self.key, self.id, self.index = kind, key, id, index
        self.place = ""
        """Of thoughts: where they stand."""
        self.part = 0
        """Of a summary: the part that is being said."""
        self.said: dict[str, list[str]] = {}
        """What it has said, by place."""
        self.told: dict[str, int] = {}
        """How many characters of that a `done` has ended."""
        self.named = self.closed = self.done = self.is_probable = self.has_phase = False
        self.sources = 0
        """Annotations that were passed on."""

    @property
    def heard(self) -> bool:
        """There is something of it that must not come twice."""
        return bool(self.said) or self.named or self.done

    def rest(self, place: str, whole: str, *, part: bool) -> str:
        """What of a whole has not been said: of the `part` that is open, or of all at that place."""
        before = "".join(self.said.get(place, ()))
        open = before[self.told.get(place, 0) :] if part else before
        repeated = part and before.endswith(whole)
        rest = whole[len(open) :] if whole.startswith(open) and not repeated else ""
        if part:
            self.told[place] = len(before) + len(rest)
        return rest


class ResponsesResponseReader(BaseResponseReader):
    """One answer."""

    __slots__ = ("_by_id", "_by_index", "_items", "_latest", "_reason")

    def __init__(self, request: Request, turn: ExchangeContext) -> None:
        super().__init__(new_assembler(request, turn, NAME, NAME_FORM))
        self._reason: FinishReason | None = None
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._by_index: dict[int, _Item] = {}
        self._latest: dict[str, _Item] = {}

    def _ended(self) -> bool:
        if self._reason is None:
            return False
        self._out.finish(self._reason)
        return True

    def _quick(self, data: bytes) -> bool:
        try:
            event = _words(data)
        except DECODE_ERRORS:
            return False
        if event.logprobs:
            return False
        kind, place, _ = _WORDS[event.type.removesuffix(".delta")]
        item = self._found(kind, event.item_id, event.output_index)
        self._say(item or self._opened(kind, event.item_id, event.output_index), place, event.delta)
        return True

    def _frame(self, fields: Fields) -> None:
        kind = lenient_values.string(fields.pop("type")) or self._event_name
        base, _, step = kind.rpartition(".")
        if base in _WORDS and step in ("delta", "done"):
            self._words(base, step, fields)
            return
        match kind:
            case "response.created" | "response.in_progress" | "response.queued":
                self._out.start()
            case "response.output_text.annotation.added":
                id, index = (
                    lenient_values.string(fields.pop("item_id")),
                    lenient_values.integer(fields.pop("output_index")),
                )
                item = self._found("message", id, index) or self._opened("message", id, index)
                for source in lenient_values.objects(fields.pop("annotation")):
                    self._cite(item, source)
            case "response.output_item.added":
                self._added(fields.pop("item"), lenient_values.integer(fields.pop("output_index")))
            case "response.output_item.done":
                self._done(fields.pop("item"), lenient_values.integer(fields.pop("output_index")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._whole(lenient_values.fields(fields.pop("response")) or fields, step)
                self._finish(done=True)
            case "error":
                raise error_from_body(fields)

    def _whole(self, response: Fields, state: str = "") -> None:
        """The whole of it; `state` is what its event says."""
        if (error := error_from_event(response)) is not None:
            raise error
        state = state or lenient_values.string(response.pop("status")) or "completed"
        heard = frozenset(item.kind for item in self._items if item.heard)
        output = response.pop("output")
        if output is None and not heard and state == "completed":
            raise UpstreamError("expected output in the server's response, got none")
        self._out.start()
        items = lenient_values.items(output)
        for index, cursor in enumerate(items):
            self._last(cursor, index, heard, cut=state == "incomplete" and index == len(items) - 1)
        if state == "completed":
            for item in self._items:
                self._close_input(item)
        if (tier := response.pop("service_tier")) is not None:
            self._out.detail("service_tier", tier.text)
        if (usage := lenient_values.fields(response.pop("usage"))) is not None:
            self._out.usage(_usage(usage))
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
            told = quote(reason) if state == "incomplete" else f"not complete, but {quote(state)}"
            self._out.warn("unknown_finish", f"the response is incomplete for {told}; it is taken for 'length'")
        return _REASONS.get(reason, "length")

    # Items

    def _added(self, found: Cursor | None, index: int | None) -> None:
        self._out.start()
        fields = lenient_values.fields(found)
        if fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        if kind not in _KINDS or id in self._by_id:
            return
        item = self._opened(kind, id, index)
        self._name(item, fields)
        self._phase(item, fields)

    def _opened(self, kind: str, id: str, index: int | None) -> _Item:
        item = _Item(kind, len(self._items), id, index)
        if kind == "message" and any(each.has_phase for each in self._items):
            self._out.detail(TEXT_BREAK, "", NAME)
        self._items.append(item)
        self._latest[kind] = item
        if id:
            self._by_id[id] = item
        if index is not None:
            self._by_index[index] = item
        return item

    def _found(self, kind: str, id: str, index: int | None) -> _Item | None:
        """The item that is meant; of a server that does not say which, the last one of that kind."""
        for named in (self._by_id.get(id), self._by_index.get(-1 if index is None else index)):
            if named is not None and named.kind == kind:
                return named
        last = self._latest.get(kind)
        if last is None or last.done or (id and last.id) or (index is not None and last.index is not None):
            return None
        return last

    def _last(self, cursor: Cursor, index: int, heard: frozenset[str], *, cut: bool) -> None:
        """An item of the last event, or of a whole body."""
        fields = lenient_values.fields(cursor)
        if fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        known = self._by_id.get(id) or (None if id else self._by_index.get(index))
        if known is not None and known.kind == kind:
            self._complete(known, cursor, cut=cut)
        elif kind not in heard:
            self._complete(self._opened(kind, id, None), cursor, cut=cut)

    def _done(self, cursor: Cursor | None, index: int | None) -> None:
        self._out.start()
        fields = lenient_values.fields(cursor)
        if cursor is None or fields is None:
            return
        kind, id = _kind_of(fields), lenient_values.string(fields.pop("id"))
        item = self._found(kind, id, index) or self._opened(kind, id, index)
        self._complete(item, cursor, cut=False)

    def _complete(self, item: _Item, cursor: Cursor, *, cut: bool) -> None:
        """Say what an item has that was not said before."""
        fields = cursor.fields()
        match item.kind:
            case "message":
                self._phase(item, fields)
                self._message(item, fields.pop("content"))
            case "reasoning":
                self._thoughts(item, fields)
            case "function_call" | "custom_tool_call":
                self._call(item, fields, cut=cut or lenient_values.string(fields.pop("status")) == "incomplete")
            case kind if not item.done:
                self._out.vendor(NAME, kind, cursor.text)
        item.done = True

    def _message(self, item: _Item, content: Cursor | None) -> None:
        whole = {"text": "", "refusal": ""}
        for cursor in lenient_values.items(content):
            part = lenient_values.fields(cursor)
            if part is None:
                whole["text"] += lenient_values.string(cursor)
                self._say(item, "text", item.rest("text", whole["text"], part=False))
                continue
            place = _PLACES.get(lenient_values.string(part.pop("type")) or "text", "")
            if not place:
                self._unknown("part", cursor)
                continue
            whole[place] += lenient_values.string(part.pop(place))
            self._say(item, place, item.rest(place, whole[place], part=False))
            entries, sources = (
                lenient_values.objects(part.pop("logprobs")),
                lenient_values.objects(part.pop("annotations")),
            )
            if entries and not item.is_probable:
                self._log(item, entries)
            if not item.done:
                for source in sources[item.sources :]:
                    self._cite(item, source)

    def _phase(self, item: _Item, fields: Fields) -> None:
        """A message that has a phase is a text of its own."""
        phase = fields.pop(PHASE)
        if item.kind != "message" or item.has_phase or phase is None:
            return
        item.has_phase = True
        if not item.said:
            self._out.detail(TEXT_BREAK, "", NAME)
        self._out.detail(PHASE, phase.text, NAME)

    def _log(self, item: _Item, entries: list[Fields]) -> None:
        item.is_probable = True
        self._out.detail(LOGPROBS, logprobs_json(entries))

    def _cite(self, item: _Item, source: Fields) -> None:
        """A source: Chat has `url_citation` too."""
        item.sources += 1
        shared = lenient_values.string(source.get("type")) == "url_citation"
        self._out.detail(ANNOTATIONS, f"[{bytes(source.raw).decode()}]", "" if shared else NAME)

    def _thoughts(self, item: _Item, fields: Fields) -> None:
        wholes = {
            place: "\n\n".join(
                lenient_values.string(part.pop("text")) for part in lenient_values.objects(fields.pop(name))
            )
            for place, name in (("text", "content"), ("summary", "summary"))
        }
        place = item.place or ("text" if wholes["text"] else "summary")
        self._say(item, place, item.rest(place, wholes.pop(place), part=False))
        (other,) = wholes.values()
        if other and not item.done:
            self._out.warn("unknown_block", "thoughts came whole and as a summary; one of them was dropped", other)
        encrypted = lenient_values.string(fields.pop("encrypted_content"))
        if encrypted and not item.done:
            redacted = encrypted.removeprefix(REDACTED) if encrypted.startswith(REDACTED) else ""
            self._out.reasoning("", "" if redacted else proof(item.id, encrypted), redacted)

    def _call(self, item: _Item, fields: Fields, *, cut: bool) -> None:
        self._name(item, fields)
        place = "input" if item.kind == "custom_tool_call" else "arguments"
        if (whole := fields.pop(place)) is not None:
            self._say(item, place, item.rest(place, lenient_values.string_or_json(whole), part=False))
        if not cut:
            self._close_input(item)
            self._out.end_call(item.key)

    def _name(self, item: _Item, fields: Fields) -> None:
        name, space = lenient_values.string(fields.pop("name")), lenient_values.string(fields.pop("namespace"))
        if item.kind in _CALLS and name and not item.named:
            item.named = True
            id = lenient_values.string(fields.pop("call_id")) or item.id
            self._out.call(item.key, id, f"{space}{JOINT}{name}" if space else name, "", named=True)

    def _unknown(self, what: str, cursor: Cursor) -> None:
        self._out.warn("unknown_block", f"{what} of the server's answer was dropped, as it has no event", cursor.text)

    # Words

    def _words(self, base: str, step: str, fields: Fields) -> None:
        kind, place, name = _WORDS[base]
        id, index = lenient_values.string(fields.pop("item_id")), lenient_values.integer(fields.pop("output_index"))
        item = self._found(kind, id, index) or self._opened(kind, id, index)
        if place == "summary":
            self._paragraph(item, lenient_values.integer(fields.pop("summary_index")) or 0)
        if step == "delta":
            self._say(item, place, lenient_values.string_or_json(fields.pop("delta")))
            if entries := lenient_values.objects(fields.pop("logprobs")):
                self._log(item, entries)
            return
        self._name(item, fields)
        if (whole := fields.pop(name)) is not None:
            self._say(item, place, item.rest(place, lenient_values.string_or_json(whole), part=True))
        self._close_input(item)

    def _paragraph(self, item: _Item, part: int) -> None:
        """Parts of a summary stand apart."""
        if part > item.part and item.said:
            self._say(item, "summary", "\n\n")
            item.told["summary"] = len("".join(item.said.get("summary", ())))
        item.part = max(item.part, part)

    def _say(self, item: _Item, place: str, text: str) -> None:
        if item.kind == "reasoning":
            item.place = item.place or place
        if not text or (item.place and item.place != place):
            return
        pieces = item.said.setdefault(place, [])
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

    def _close_input(self, item: _Item) -> None:
        """What a custom tool gets is whole, and so is the string that holds it."""
        if item.kind == "custom_tool_call" and not item.closed:
            item.closed = True
            self._out.call(item.key, "", "", _CLOSER if item.said else _OPENER + _CLOSER)


def _kind_of(fields: Fields) -> str:
    """The type of an item; where it is missing, by a member that only one has."""
    kind = lenient_values.string(fields.pop("type"))
    return kind or next((kind for name, kind in _TOLD_BY.items() if fields.get(name) is not None), "")


def _usage(counts: Fields) -> Usage:
    extra = unmodelled_counts(counts, _COUNTS)
    return Usage(
        input_tokens=lenient_values.count_at(counts, "input_tokens"),
        output_tokens=lenient_values.count_at(counts, "output_tokens"),
        cached_input_tokens=lenient_values.count_at(counts, "input_tokens_details", "cached_tokens"),
        cache_write_tokens=lenient_values.count_at(counts, "input_tokens_details", "cache_write_tokens"),
        reasoning_tokens=lenient_values.count_at(counts, "output_tokens_details", "reasoning_tokens"),
        extra=extra,
        dialect=NAME if extra else "",
    )


def count_of(body: bytes) -> int:
    """The number of tokens that an answer to a request for it tells.

    Raises: RequestError: it tells none.
    """
    return json_cursor.parse(body).fields().require("input_tokens").integer(minimum=0)
