"""Writes replies of OpenAI Chat Completions, streamed and whole."""

from typing import Final, assert_never

import msgspec
from msgspec import Raw

from dragoman.core import events, messages, response_details
from dragoman.core.collect import finish_reason
from dragoman.core.events import AnyEvent, EventOrder, Finish, Start, ToolCallStart
from dragoman.core.messages import Reply, Request, Text, ToolCall, Usage
from dragoman.core.response_details import is_for
from dragoman.dialects.openai_chat.request_reader import CUSTOM, FUNCTIONS, custom_names
from dragoman.schema.free_text import INPUT
from dragoman.text import json_cursor
from dragoman.text.json_member import StringMember, read_string_member
from dragoman.wire import sse
from dragoman.wire.detail_fields import with_unmodelled_counts
from dragoman.wire.openai_errors import write_error

NAME: Final = "openai_chat"

OF_MESSAGE: Final = ("reasoning_details", "audio", "images")
"""Fields next to the text (OpenRouter, audio models), for clients of this API."""

_encode = msgspec.json.Encoder().encode


class ChatResponseWriter:
    """Writes one streamed reply."""

    __slots__ = (
        *("_arguments_head", "_base", "_call_index", "_customs", "_fields", "_head", "_input", "_order", "_rest"),
        *("_tail", "_text_head", "_usage", "_wants_usage", "_with_functions"),
    )

    def __init__(self, request: Request) -> None:
        self._order = EventOrder(NAME)
        self._usage = Usage()
        self._wants_usage = request.stream_usage
        self._with_functions = FUNCTIONS in request.extra
        self._customs = custom_names(request)
        self._input: StringMember | None = None
        """The free text of the open custom tool call."""
        self._rest = b',"usage":null}\n\n' if request.stream_usage else b"}\n\n"
        self._tail = b'},"finish_reason":null}]' + self._rest
        self._fields: dict[str, object] = {}
        self._base = self._head = b""
        self._text_head = self._arguments_head = b""
        """Bytes before the JSON string of a delta of text, and of the arguments of the open function call."""
        self._call_index = -1
        """Index of the open function call; -1: the last call is of another kind."""

    def feed(self, event: AnyEvent) -> bytes:
        """Returns the bytes for this event.

        Raises:
            EventOrderError: A bug in the code that sent it.
        """
        self._order.feed(event)
        if type(event) is events.TextDelta:  # the two most frequent events
            return self._text_head + _encode(event.text) + self._tail if event.text else b""
        if type(event) is events.ToolCallDelta and self._arguments_head:
            return self._arguments_head + _encode(event.text) + b"}}]" + self._tail if event.text else b""
        return self._feed(event)

    def _feed(self, event: AnyEvent) -> bytes:
        match event:
            case events.TextDelta(text):
                return self._delta(b'"content":', text)
            case ToolCallStart() | events.ToolCallDelta() | events.ToolCallEnd():
                return self._function_call(event) if self._with_functions else self._call(event)
            case events.ReasoningDelta(text):
                return self._delta(b'"reasoning_content":', text)
            case events.RefusalDelta(text):
                return self._delta(b'"refusal":', text)
            case Start():
                return self._start(event)
            case events.UsageUpdate(usage):
                self._usage = usage
                return b""
            case events.ToolCallIncomplete() | events.Notice() | events.VendorBlock() | events.VendorBlockStart():
                return b""
            case events.Detail() | Finish() | events.Failure():
                return self._other(event)
            case _:
                assert_never(event)

    def _other(self, event: events.Detail | Finish | events.Failure) -> bytes:
        match event:
            case events.Detail(dialect=dialect):
                return self._detail_of(event) if is_for(dialect, NAME) else b""
            case Finish():
                return self._finish(event)
            case events.Failure(error):
                return sse.encode(write_error(error)) + _DONE

    def _delta(self, name: bytes, text: str, closing: bytes = b"") -> bytes:
        return self._head + name + _encode(text) + closing + self._tail if text else b""

    def _detail_of(self, event: events.Detail) -> bytes:
        """Returns a chunk with the detail; service data is repeated in all later chunks."""
        raw = Raw(event.json.encode())
        match event.name:
            case response_details.LOGPROBS:
                members = b',"logprobs":' + _encode({"content": raw, "refusal": None})
                return self._head + b"}" + members + b',"finish_reason":null}]' + self._rest
            case response_details.ANNOTATIONS:
                return self._head + b'"annotations":' + _encode(_nested(raw)) + self._tail
            case response_details.PROGRESS:
                return self._head + self._tail.removesuffix(b"}\n\n") + b"," + _encode({event.name: raw})[1:] + b"\n\n"
            case name if name in OF_MESSAGE:
                return self._head + _encode({name: raw})[1:-1] + self._tail
            case name:
                self._begins({**self._fields, name: raw})
                return b""

    def _begins(self, fields: dict[str, object]) -> None:
        """Returns the bytes at the beginning of all later chunks."""
        self._fields = fields
        self._base = b"data: " + _encode(fields)[:-1] + b',"choices":['
        self._head = self._base + b'{"index":0,"delta":{'
        self._text_head = self._head + b'"content":'
        self._set_arguments_head()

    def _set_arguments_head(self) -> None:
        is_open = self._call_index >= 0
        call = b'"tool_calls":[{"index":%d,"function":{"arguments":' % self._call_index if is_open else b""
        self._arguments_head = self._head + call if is_open else b""

    def _call(self, event: ToolCallStart | events.ToolCallDelta | events.ToolCallEnd) -> bytes:
        """Returns the chunk of a call's delta; for a custom tool, the free text itself."""
        if isinstance(event, ToolCallStart):
            is_custom = event.name in self._customs
            self._input = StringMember(INPUT) if is_custom else None
            self._call_index = -1 if is_custom else event.index
            self._set_arguments_head()
            call_head = _encode({"index": event.index, **_head(event, is_custom=is_custom)})
            return self._head + b'"tool_calls":[' + call_head + b"]" + self._tail
        text = event.text if isinstance(event, events.ToolCallDelta) else None
        if self._input is not None:
            delta = self._input.close() if text is None else self._input.feed(text)
            return self._delta(b'"tool_calls":[{"index":%d,"custom":{"input":' % event.index, delta, b"}}]")
        return self._delta(b'"tool_calls":[{"index":%d,"function":{"arguments":' % event.index, text or "", b"}}]")

    def _function_call(self, event: ToolCallStart | events.ToolCallDelta | events.ToolCallEnd) -> bytes:
        """Returns the chunk of the single `function_call`."""
        if event.index:
            return b""
        if isinstance(event, ToolCallStart):
            return self._head + b'"function_call":' + _encode({"name": event.name, "arguments": ""}) + self._tail
        text = event.text if isinstance(event, events.ToolCallDelta) else ""
        return self._delta(b'"function_call":{"arguments":', text, b"}")

    def _start(self, event: Start) -> bytes:
        self._usage = Usage(input_tokens=event.input_tokens)
        self._begins(_identity(event, "chat.completion.chunk"))
        return self._head + b'"role":"assistant","content":""' + self._tail

    def _finish(self, event: Finish) -> bytes:
        reason = _finish_reason(finish_reason(event, self._order), self._order.calls > 0, self._with_functions)
        last = self._head + b'},"finish_reason":' + _encode(reason) + b"}]" + self._rest
        if self._wants_usage:
            last += self._base + b'],"usage":' + _encode(_usage(self._usage)) + b"}\n\n"
        return last + _DONE


_DONE = sse.encode(sse.DONE)


def _identity(reply: Reply | Start, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _head(call: ToolCall | ToolCallStart, arguments: str = "", *, is_custom: bool = False) -> dict[str, object]:
    if is_custom:
        return {
            "id": call.id,
            "type": CUSTOM,
            CUSTOM: {"name": call.name, "input": read_string_member(arguments, INPUT)},
        }
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _finish_reason(reason: messages.FinishReason, has_call: bool, with_functions: bool) -> str:
    if reason == "pause" and has_call:
        reason = "tool_calls"  # calls next to vendor-run tools; clients run no call that ends with "stop"
    if reason == "tool_calls" and with_functions:
        return "function_call"
    return "stop" if reason in ("stop_sequence", "pause") else reason


def _usage(usage: Usage) -> dict[str, object]:
    counts: dict[str, object] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    return with_unmodelled_counts(counts, usage, NAME)


def _nested(annotations: Raw) -> list[object]:
    """Returns annotations in the form of this API: `url_citation` in a field of its own."""
    return [_annotation(each) for each in response_details.list_items(annotations)]


def _annotation(raw: Raw) -> object:
    members = dict(json_cursor.parse(bytes(raw)).fields().remaining())
    if "url_citation" in members or bytes(members.get("type", b"")) != b'"url_citation"':
        return raw
    return {"type": members.pop("type"), "url_citation": members}


def _joined_details(reply: Reply, name: str) -> list[Raw]:
    """Returns the items of a detail from all texts."""
    items: list[Raw] = []
    for part in reply.parts:
        if isinstance(part, (Text, messages.Refusal)) and part.extra:
            items += response_details.list_items(part.extra.get(name))
    return items


def write_reply(reply: Reply, request: Request) -> bytes:
    """Returns the body of a whole reply; `content` is null if there are only calls or a refusal."""
    text = reasoning = refusal = ""
    calls: list[ToolCall] = []
    for part in reply.parts:
        if type(part) is Text:
            text += part.text
        elif type(part) is ToolCall:
            calls.append(part)
        elif type(part) is messages.Reasoning:
            reasoning += part.text
        elif type(part) is messages.Refusal:
            refusal += part.text
    with_functions = FUNCTIONS in request.extra
    message: dict[str, object] = {
        "role": "assistant",
        "content": None if not text and (calls or refusal) else text,
        "refusal": refusal or None,
    }
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls and with_functions:
        message["function_call"] = {"name": calls[0].name, "arguments": calls[0].arguments}
    elif calls:
        customs = custom_names(request)
        message["tool_calls"] = [_head(call, call.arguments, is_custom=call.name in customs) for call in calls]
    reason = _finish_reason(reply.finish_reason, bool(calls), with_functions)
    if sources := _joined_details(reply, response_details.ANNOTATIONS):
        message["annotations"] = [_annotation(each) for each in sources]
    details = reply.details
    if details:
        message |= {name: raw for name, raw in details.items() if name in OF_MESSAGE}
        details = {name: raw for name, raw in details.items() if name not in (*OF_MESSAGE, response_details.PROGRESS)}
    probable = _joined_details(reply, response_details.LOGPROBS)
    logprobs = {"content": probable, "refusal": None} if probable else None
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason}
    body = {**_identity(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply.usage), **details}
    return _encode(body)
