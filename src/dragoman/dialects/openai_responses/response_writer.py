"""Writes replies of OpenAI Responses, streamed and whole, with the same items in both."""

from typing import Final, NamedTuple, TypeAlias, assert_never

import msgspec
from msgspec import Raw

from dragoman.core import events, messages
from dragoman.core.collect import Collector
from dragoman.core.errors import DragomanError, RequestError
from dragoman.core.events import NO_CHANGE, AnyEvent, Block, BlockChange, Start, ToolCallStart
from dragoman.core.messages import Part, Reply, Request, Text, ToolCall, UnknownPart
from dragoman.core.response_details import ANNOTATIONS, LOGPROBS, PHASE, is_for, list_items
from dragoman.dialects.openai_responses.client_tools import client_kinds, found_by_client, item_of
from dragoman.dialects.openai_responses.request_reader import (
    JOINT,
    NAME,
    REDACTED,
    namespace_of,
)
from dragoman.dialects.openai_responses.response_usage import usage_fields
from dragoman.dialects.openai_responses.tool_items import write_tools
from dragoman.schema.free_text import INPUT
from dragoman.text import json_cursor
from dragoman.text.json_member import StringMember, read_string_member
from dragoman.wire import sse
from dragoman.wire.openai_errors import error_fields, status
from dragoman.wire.openai_fields import is_custom

Json = dict[str, object]

_encode = msgspec.json.Encoder().encode

_ENDS: Final[dict[messages.FinishReason, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reasons of incomplete responses; with any other finish reason a response is complete."""
_ECHOED: Final = ("truncation", "max_tool_calls", "top_logprobs", "prompt_cache_key", "safety_identifier", "user")
"""Request fields that the response repeats under the same name and unchanged."""


class _ContentEvents(NamedTuple):
    """Names of the events and fields for the content of an item type."""

    event: str
    """Prefix of its event names, `….delta` and `….done`."""
    field: str
    """Field that contains the whole content."""
    part: str = ""
    """Prefix of the names of part events, for items with parts."""
    place: str = ""
    """Field that counts the parts."""
    empty: Json = {}  # noqa: RUF012 never written to
    """An empty part."""


_TEXT = _ContentEvents(
    "response.output_text",
    "text",
    "response.content_part",
    "content_index",
    {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
)
_REFUSAL = _ContentEvents(
    "response.refusal", "refusal", "response.content_part", "content_index", {"type": "refusal", "refusal": ""}
)
_SUMMARY = _ContentEvents(
    "response.reasoning_summary_text",
    "text",
    "response.reasoning_summary_part",
    "summary_index",
    {"type": "summary_text", "text": ""},
)
_ARGUMENTS = _ContentEvents("response.function_call_arguments", "arguments")
_VENDOR = _ContentEvents("", "", "response.content_part")
"""An item that arrives whole: it has no text of its own to announce."""
_INPUT = _ContentEvents("response.custom_tool_call_input", "input")


_Others: TypeAlias = (
    Start
    | events.TextDelta
    | events.ReasoningDelta
    | events.RefusalDelta
    | events.VendorBlock
    | events.VendorBlockStart
    | ToolCallStart
    | events.ToolCallEnd
    | events.ToolCallIncomplete
    | events.Notice
    | events.Detail
    | events.UsageUpdate
    | events.Finish
)
"""All events except the two most frequent ones and the last."""


class ResponsesResponseWriter:
    """Writes one streamed reply."""

    __slots__ = (
        *("_annotations", "_awaits_part", "_collector", "_delta", "_input", "_items", "_phase", "_place", "_content"),
        *("_event_count", "_waiting"),
    )

    def __init__(self, request: Request) -> None:
        self._collector = Collector(NAME, keep_broken=True)
        self._items = _Items(request)
        self._event_count = 0
        """Number of events so far."""
        self._content = _TEXT
        """Of the open item, as are the three below."""
        self._place: Json = {}
        self._awaits_part = False
        """The next text is the first of the part."""
        self._annotations = 0
        """Details of the open text."""
        self._waiting: list[events.Detail] = []
        self._phase: messages.ExtraFields = {}
        """Details of the next text."""
        self._delta = (b"", b"", b"")
        """Bytes around the sequence number and the text of a delta."""
        self._input = StringMember(INPUT)
        """Input of the open custom tool call."""

    def feed(self, event: AnyEvent) -> bytes:
        """Returns the bytes for this event.

        Raises:
            EventOrderError: A bug in the code that sent it.
        """
        step = self._collector.feed(event)
        if type(event) is events.TextDelta and step is NO_CHANGE:  # the two most frequent events
            return self._text_delta(event.text) if event.text else b""
        if isinstance(event, events.ToolCallDelta):
            text = self._input.feed(event.text) if self._content is _INPUT else event.text
            return self._text_delta(text) if text and self._content is not _VENDOR else b""
        match event:
            case events.Failure(error):  # an open item then gets no `done`
                return self._fail(error)
            case _:
                return self._step(event, step)

    def _step(self, event: _Others, step: BlockChange) -> bytes:
        closes, opens, ends = step
        before = self._close(closes) if closes else b""
        if opens:
            before += self._open(opens, event)
        match event:
            case events.TextDelta(text) | events.RefusalDelta(text) | events.ReasoningDelta(text):
                return before + self._text_delta(text) if text else before
            case ToolCallStart() | events.Notice() | events.UsageUpdate():
                return before
            case events.VendorBlock(dialect) | events.VendorBlockStart(dialect):
                return before + (self._vendor_steps(event) if dialect == NAME else b"")
            case events.Detail():
                return before + self._detail(event)
            case events.ToolCallEnd():
                rest = self._input.close() if self._content is _INPUT else ""
                return (self._text_delta(rest) if rest else b"") + (self._close(ends) if ends else b"")
            case events.ToolCallIncomplete():
                return b""
            case Start():
                return self._response("created", "in_progress") + self._response("in_progress", "in_progress")
            case events.Finish():
                state = _state(self._collector.reply())
                return before + self._response(state, state)
            case _:
                assert_never(event)

    def _vendor_steps(self, event: events.VendorBlock | events.VendorBlockStart) -> bytes:
        steps = b"".join(self._event(f"response.{event.type}.{step}", self._place) for step in event.steps)
        if isinstance(event, events.VendorBlock) or not event.arguments:
            return steps
        kind = f"response.{event.type}_arguments"
        steps += self._event(f"{kind}.delta", {**self._place, "delta": event.arguments})
        return steps + self._event(f"{kind}.done", {**self._place, "arguments": event.arguments})

    def _detail(self, event: events.Detail) -> bytes:
        """Keeps a detail for the open text, or else for the next one."""
        if event.name == PHASE and not self._collector.is_text:
            self._phase = {PHASE: Raw(event.json.encode())}
        if not is_for(event.dialect, NAME) or event.name not in (LOGPROBS, ANNOTATIONS):
            return b""
        self._waiting.append(event)
        return b"" if self._awaits_part or not self._collector.is_text else self._waited()

    def _waited(self) -> bytes:
        """Returns the details that were waiting."""
        waiting, self._waiting = self._waiting, []
        return b"".join(map(self._of_text, waiting)) if self._content is _TEXT else b""

    def _of_text(self, event: events.Detail) -> bytes:
        raw = Raw(event.json.encode())
        if event.name == LOGPROBS:
            return self._event("response.output_text.delta", {**self._place, "delta": "", "logprobs": raw})
        encoded = b""
        for each in list_items(raw):
            members = {**self._place, "annotation_index": self._annotations, "annotation": each}
            encoded += self._event("response.output_text.annotation.added", members)
            self._annotations += 1
        return encoded

    def _event(self, kind: str, members: Json) -> bytes:
        number, self._event_count = self._event_count, self._event_count + 1
        return sse.encode(_encode({"type": kind, "sequence_number": number, **members}), kind)

    def _response(self, kind: str, state: str, error: Json | None = None) -> bytes:
        return self._event(
            f"response.{kind}", {"response": self._items.response(self._collector.reply(), state, error)}
        )

    def _open(self, block: Block, event: AnyEvent) -> bytes:
        part, self._content = self._items.new_item(event)
        if self._content is _INPUT:
            self._input = StringMember(INPUT)
        if self._content is _TEXT and self._phase:
            part, self._phase = Text("", self._phase), {}
        item = self._items.item(part, f"{self._collector.reply().id}_{block.number}", "in_progress")
        self._awaits_part = bool(self._content.part)
        self._annotations = 0
        self._place = {"item_id": item.get("id"), "output_index": block.number}
        if self._content.place:
            self._place[self._content.place] = 0
        kind = f"{self._content.event}.delta".encode()
        self._delta = (
            b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind, kind),
            b"," + _encode(self._place)[1:-1] + b',"delta":',
            b',"logprobs":[]}\n\n' if self._content is _TEXT else b"}\n\n",
        )
        return self._event("response.output_item.added", {"output_index": block.number, "item": item})

    def _text_delta(self, text: str) -> bytes:
        if self._awaits_part:
            self._awaits_part = False
            opening = self._event(f"{self._content.part}.added", {**self._place, "part": self._content.empty})
            return opening + self._text_delta(text) + (self._waited() if self._waiting else b"")
        before, middle, after = self._delta
        number = self._event_count
        self._event_count = number + 1
        return b"".join((before, _encode(number), middle, _encode(text), after))

    def _close(self, block: Block) -> bytes:
        reply, content = self._collector.reply(), self._content
        cut = self._collector.phase == "ended" and _state(reply) == "incomplete"
        item = self._items.finished_item(reply, block.number, cut=cut)
        content_value = _content_value(reply.parts[block.number], content)
        extra = _details(reply.parts[block.number])
        done = b""
        if not self._awaits_part:
            logprobs: Json = {"logprobs": extra.get(LOGPROBS, [])} if content is _TEXT else {}
            done += self._event(f"{content.event}.done", {**self._place, content.field: content_value, **logprobs})
            if content.part:
                part = {**content.empty, content.field: content_value, **extra}
                broken: Json = {"status": "incomplete"} if cut and content is _SUMMARY else {}
                done += self._event(f"{content.part}.done", {**self._place, "part": part, **broken})
        return done + self._event("response.output_item.done", {"output_index": block.number, "item": item})

    def _fail(self, error: DragomanError) -> bytes:
        fields = error_fields(error)
        if self._event_count:
            return self._response("failed", "failed", {"code": _code(error), "message": fields["message"]})
        flat: Json = {name: fields[name] for name in ("code", "message", "param")}
        return self._event("error", {**flat, "error": fields})


def _code(error: DragomanError) -> str:
    """Returns the error code, one of the few that a failed response may have."""
    number = status(error)
    return "rate_limit_exceeded" if number == 429 else "server_error" if number >= 500 else "invalid_prompt"


def _state(reply: Reply) -> str:
    return "incomplete" if reply.finish_reason in _ENDS else "completed"


def _content_value(part: Part, content: _ContentEvents) -> str:
    """Returns the whole content of an item."""
    match part:
        case Text(text) | messages.Refusal(text) | messages.Reasoning(text):
            return text
        case ToolCall(arguments=arguments):
            return read_string_member(arguments, INPUT) if content is _INPUT else arguments
        case _:
            return ""


def write_count(tokens: int, cleared: int | None = None) -> bytes:
    """Returns the body of a token count."""
    return _encode({"object": "response.input_tokens", "input_tokens": tokens})


def write_reply(reply: Reply, request: Request) -> bytes:
    """Returns the body of a whole reply."""
    return _encode(_Items(request).response(reply, _state(reply)))


class _Items:
    """Builds the response objects for one request, and the items in them."""

    __slots__ = ("_client", "_custom", "_request_fields", "_spaces")

    def __init__(self, request: Request) -> None:
        offered = (*request.tools, *found_by_client(request))
        self._custom = frozenset(tool.name for tool in offered if is_custom(tool))
        self._client = client_kinds(request.tools)
        self._spaces = {tool.name: space for tool in offered if (space := namespace_of(tool))}
        choice, extra = request.tool_choice, request.extra
        named = {"type": "custom" if choice.name in self._custom else "function", **self._name(choice.name)}
        self._request_fields: Json = {
            "background": False,
            "instructions": None,
            "max_output_tokens": request.max_tokens,
            "metadata": extra.get("metadata", {}),
            "parallel_tool_calls": choice.parallel_tool_calls,
            "previous_response_id": f"resp_{request.previous_response.reply_id}" if request.previous_response else None,
            "reasoning": extra.get("reasoning"),
            "store": request.store,
            "temperature": request.sampling.temperature,
            "text": extra.get("text", {"format": {"type": "text"}}),
            "tool_choice": extra.get("tool_choice", named if choice.mode == "named" else choice.mode),
            "tools": write_tools(request.tools),
            "top_p": request.sampling.top_p,
            **{name: extra[name] for name in _ECHOED if name in extra},
        }

    def response(self, reply: Reply, state: str, error: Json | None = None) -> Json:
        """Returns the response object as far as the reply has arrived."""
        last, cut = len(reply.parts) - 1, state in ("incomplete", "failed")
        output = [self.finished_item(reply, number, cut=cut and number == last) for number in range(len(reply.parts))]
        why = {"reason": _ENDS[reply.finish_reason]} if state == "incomplete" else None
        return {
            "id": f"resp_{reply.id}",
            "object": "response",
            "created_at": reply.created,
            "status": state,
            "error": error,
            "incomplete_details": why,
            "model": reply.model,
            "output": [item for item in output if item],
            "usage": None if state == "in_progress" else usage_fields(reply.usage),
            **self._request_fields,
            **reply.details,
        }

    def new_item(self, event: AnyEvent) -> tuple[Part, _ContentEvents]:
        """Returns the item that begins with this event, and its form."""
        match event:
            case ToolCallStart(_, id, name):
                content = _INPUT if name in self._custom else _VENDOR if name in self._client else _ARGUMENTS
                return ToolCall(id, name, ""), content
            case events.ReasoningDelta():
                return messages.Reasoning(""), _SUMMARY
            case events.RefusalDelta():
                return messages.Refusal(""), _REFUSAL
            case events.VendorBlock(dialect, kind, json) | events.VendorBlockStart(dialect, kind, json):
                return UnknownPart(kind, msgspec.Raw(json.encode()), dialect=dialect), _VENDOR
            case _:
                return Text(""), _TEXT

    def finished_item(self, reply: Reply, number: int, *, cut: bool) -> Json:
        """Returns the item of a part; whether a call was cut off shows in its arguments."""
        part = reply.parts[number]
        cut = not _is_object(part.arguments) if isinstance(part, ToolCall) else cut
        return self.item(part, f"{reply.id}_{number}", "incomplete" if cut else "completed")

    def item(self, part: Part, name: str, state: str) -> Json:
        """Returns the item of a part; empty if no event produces such a part."""
        match part:
            case Text(text, extra):
                phase = {PHASE: extra[PHASE]} if PHASE in extra else {}
                content: list[Json] = [{**_TEXT.empty, "text": text, **_details(part)}] if text else []
                return {**_message(name, state, content), **phase}
            case messages.Refusal(text):
                return _message(name, state, [{**_REFUSAL.empty, "refusal": text}] if text else [])
            case messages.Reasoning(text, signature, redacted):
                summary = [{**_SUMMARY.empty, "text": text}] if text else []
                proven = REDACTED + redacted if redacted else signature
                proof: Json = {"encrypted_content": proven} if proven else {}
                return {"id": f"rs_{name}", "type": "reasoning", "status": state, "summary": summary, **proof}
            case ToolCall(name=kind) if kind in self._client:
                return item_of(kind, name, part, state)
            case ToolCall(id, tool, arguments):
                call: Json = {"status": state, "call_id": id, **self._name(tool)}
                if tool in self._custom:
                    return {
                        "id": f"ctc_{name}",
                        "type": "custom_tool_call",
                        **call,
                        "input": read_string_member(arguments, INPUT),
                    }
                return {"id": f"fc_{name}", "type": "function_call", **call, "arguments": arguments}
            case UnknownPart(raw=raw, dialect=dialect):
                return dict(json_cursor.parse(bytes(raw)).fields().remaining()) if dialect == NAME else {}
            case (
                messages.Image()
                | messages.Document()
                | messages.Audio()
                | messages.ToolResult()
                | messages.PreviousResponseRef()
            ):
                return {}
            case _:
                assert_never(part)

    def _name(self, tool: str) -> Json:
        """Returns the tool's name as the client knows it."""
        space = self._spaces.get(tool)
        return {"name": tool.removeprefix(f"{space}{JOINT}"), "namespace": space} if space else {"name": tool}


def _message(name: str, state: str, content: list[Json]) -> Json:
    return {"id": f"msg_{name}", "type": "message", "status": state, "role": "assistant", "content": content}


def _details(part: Part) -> Json:
    """Returns the details of a text."""
    extra = part.extra if isinstance(part, Text) else {}
    return {name: extra[name] for name in (LOGPROBS, ANNOTATIONS) if name in extra}


def _is_object(arguments: messages.JsonText) -> bool:
    try:
        return bool(json_cursor.parse(arguments).object())
    except RequestError:
        return False
