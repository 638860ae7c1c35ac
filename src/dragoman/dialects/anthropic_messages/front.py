"""Anthropic Messages in front: how clients ask, and how they are answered.

    request   {"model": "m", "max_tokens": 1024, "system": "Be brief.",
               "messages": [{"role": "user", "content": "Weather in Bern?"}],
               "tools": [{"name": "weather", "input_schema": {…}}]}

    stream    event: message_start
              data: {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
                     "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": {…}}}
              … {"type": "content_block_start", "index": 0, "content_block":
                 {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}}
              … {"type": "content_block_delta", "index": 0, "delta":
                 {"type": "input_json_delta", "partial_json": "{\\"city\\":\\"Bern\\"}"}}
              … {"type": "content_block_stop", "index": 0}
              … {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {…}}
              … {"type": "message_stop"}

    whole     the message with its `content` blocks, `stop_reason` and `usage`

    error     {"type": "error", "error": {"type": "invalid_request_error", "message": "…"}}

A call that was cut off ends the message with stop_reason "max_tokens". Streamed, its input breaks off where the
model did. A whole message must hold an object there: `{"__unparsedToolInput": {"raw": "…"}}`, the form in which
Claude Code itself keeps such input. An empty object would be legal input for many tools, and be run.

`usage.input_tokens` does not count the cached part of the prompt, which has its own field. Words of refusal are a
text block, with stop_reason "refusal". What has died behind us is 529 `overloaded_error`, which clients retry.

Where a block's `source`, or the request's `output_config` or `thinking`, says more than the values here have room for,
it also stays in `extra` as it came. An empty text says nothing and is left out.

Source: https://docs.anthropic.com/en/api/messages (2026-11).
"""

from collections.abc import Callable
from typing import Final, Literal, assert_never

import msgspec

from dragoman.core import errors, events, shape, sse, values
from dragoman.core.collect import finish_of
from dragoman.core.content import read_parts, read_text
from dragoman.core.errors import DragomanError, RequestError, UnsupportedError
from dragoman.core.events import AnyEvent, Block, BlockKind, Finish, Order, Start, ToolCallStart
from dragoman.core.shape import Cursor, Fields
from dragoman.core.values import Message, Opaque, Part, Reply, Request, Text, Tool, ToolCall, ToolChoice, Usage

NAME_LIMIT_CHARS: Final = 128
"""Of a tool's name, as the page has it."""

_ROLES: Final[tuple[Literal["user", "assistant", "system"], ...]] = ("user", "assistant", "system")
_MODES: Final[dict[str, Literal["auto", "required", "none", "named"]]] = {
    "auto": "auto",
    "any": "required",
    "none": "none",
    "tool": "named",
}


_BUDGETS: Final = ((16_384, "high"), (4_096, "medium"), (float("-inf"), "low"))
"""Least `budget_tokens`, and the effort that they are for an API that counts none; a choice of ours."""


_encode = msgspec.json.Encoder().encode


# Requests


def read_request(body: bytes | str) -> Request:
    """The request that a body asks for.

    Raises: CallerError: what is wrong, and where; anything else is a bug here.
    """
    fields = shape.at(body).fields()
    if thread := fields.take("thread"):
        # The SDKs' tool runners send it first, and go on without it when they are told so in these terms.
        raise UnsupportedError("message threads are not kept here; send the whole conversation", thread.path)
    tools = tuple(_tool(item) for item in fields.items("tools"))
    schema, kept = _response_schema(fields)
    system = read_parts(fields.take("system"), _PARTS)
    messages = tuple(_message(item) for item in fields.need("messages").items())
    if not messages:
        raise RequestError("expected at least one message, got none", "$.messages")
    return Request(
        model=fields.need("model").string(),
        messages=((Message("system", system),) if system else ()) + messages,
        tools=tools,
        tool_choice=_tool_choice(fields.take("tool_choice"), tools),
        sampling=values.Sampling(
            temperature=fields.number("temperature", 0, 1),
            top_p=fields.number("top_p", 0, 1),
            top_k=fields.integer("top_k", least=0),
        ),
        max_tokens=fields.need("max_tokens").integer(least=1),
        stop=tuple(text for item in fields.items("stop_sequences") if (text := item.string())),
        response_schema=schema,
        stream=fields.flag("stream"),
        stream_usage=True,
        effort=_effort(fields.peek("thinking"), kept),
        extra={**kept, **fields.rest()},
        dialect="anthropic_messages",
    )


def _effort(thinking: Cursor | None, kept: values.Extra) -> str:
    """`output_config.effort`, or as much as the budget for thinking amounts to."""
    config = kept.get("output_config")
    told = shape.Cursor(config, "$.output_config").fields().peek("effort") if config is not None else None
    if told is not None and told.kind == "string":
        return told.string()
    fields = thinking.fields() if thinking is not None and thinking.kind == "object" else None
    kind = fields.peek("type") if fields else None
    if fields is None or kind is None or kind.kind != "string":
        return ""
    if kind.string() == "disabled":
        return "none"
    budget = fields.peek("budget_tokens")
    if budget is None or budget.kind != "number":
        return ""
    return next(effort for least, effort in _BUDGETS if budget.number() >= least)


def _response_schema(fields: Fields) -> tuple[values.JsonText, values.Extra]:
    config = fields.take("output_config")
    if config is None:
        return "", {}
    form = config.fields().take("format")
    if form is None:
        return "", {"output_config": config.raw}
    inner = form.fields()
    inner.need("type").choice(("json_schema",), "output format")
    return inner.need("schema").object(), {"output_config": config.raw}


def _message(cursor: Cursor) -> Message:
    fields = cursor.fields()
    role = fields.need("role").choice(_ROLES, "role")
    return Message(role, read_parts(fields.take("content"), _PARTS), fields.rest())


def _image(fields: Fields) -> values.Image | Opaque:
    media, kept = _media(fields.need("source"))
    return values.Image(media, {**kept, **fields.rest()}) if media else Opaque("image", fields.raw, fields.path)


def _document(fields: Fields) -> values.Document | Opaque:
    media, kept = _media(fields.need("source"))
    if media is None:
        return Opaque("document", fields.raw, fields.path)
    return values.Document(media, fields.string("title"), {**kept, **fields.rest()})


def _media(cursor: Cursor) -> tuple[values.Media | None, values.Extra]:
    """The source of a block, None where it is not known here; and the source as it came where that holds more."""
    source = cursor.fields()
    match source.need("type").string():
        case "base64":
            media = values.Media(source.string("media_type"), data=source.need("data").string())
        case "text":
            media = values.Media(source.string("media_type"), text=source.need("data").string())
        case "url":
            media = values.Media(url=source.need("url").string())
        case "file":
            media = values.Media(file_id=source.need("file_id").string())
        case "content":
            parts = read_parts(source.take("content"), {"text": read_text})
            words = [part.text for part in parts if isinstance(part, Text)]
            whole = len(words) == len(parts)  # with an image among them, words alone would be a lie
            return values.Media("text/plain", text="\n".join(words)) if whole else None, {"source": cursor.raw}
        case _:
            return None, {}
    return media, {"source": cursor.raw} if source.rest() else {}


def _thinking(fields: Fields) -> values.Reasoning:
    return values.Reasoning(fields.string("thinking"), fields.string("signature"), extra=fields.rest())


def _redacted(fields: Fields) -> values.Reasoning:
    return values.Reasoning("", redacted=fields.need("data").string(), extra=fields.rest())


def _tool_use(fields: Fields) -> ToolCall:
    arguments = fields.object("input") or "{}"
    return ToolCall(fields.need("id").word(), fields.need("name").word(), arguments, fields.rest())


def _tool_result(fields: Fields) -> values.ToolResult:
    call_id = fields.need("tool_use_id").word()
    parts = read_parts(fields.take("content"), _RESULT_PARTS)
    return values.ToolResult(call_id, parts, fields.flag("is_error"), fields.rest())


_RESULT_PARTS: Final[dict[str, Callable[[Fields], values.ResultPart]]] = {
    "text": read_text,
    "image": _image,
    "document": _document,
}
_PARTS: Final[dict[str, Callable[[Fields], Part]]] = {
    **_RESULT_PARTS,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}


def _tool(cursor: Cursor) -> Tool:
    fields = cursor.fields()
    kind = fields.string("type") or "custom"
    if kind != "custom":
        return Tool(fields.string("name"), kind=kind, extra=cursor.fields().rest())
    name = fields.need("name").word(NAME_LIMIT_CHARS)
    return Tool(
        name=name,
        description=fields.string("description"),
        parameters=fields.object("input_schema") or Tool(name).parameters,
        extra=fields.rest(),
    )


def _tool_choice(found: Cursor | None, tools: tuple[Tool, ...]) -> ToolChoice:
    if found is None:
        return ToolChoice()
    fields = found.fields()
    mode = _MODES[fields.need("type").choice(_MODES, "tool choice")]
    if not tools:
        if mode in ("required", "named"):
            raise RequestError("expected tools to choose from, got none", found.path)
        return ToolChoice()
    name = fields.need("name").choice([tool.name for tool in tools], "tool") if mode == "named" else ""
    return ToolChoice(mode, name, parallel=not fields.flag("disable_parallel_tool_use"))


# Replies

_STOP_REASONS: Final[dict[values.FinishReason, str]] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_DELTAS: Final[dict[BlockKind, bytes]] = {
    "text": b'{"type":"text_delta","text":',
    "refusal": b'{"type":"text_delta","text":',
    "reasoning": b'{"type":"thinking_delta","thinking":',
    "tool_call": b'{"type":"input_json_delta","partial_json":',
}
_BLOCKS: Final[dict[BlockKind, bytes]] = {
    "text": b'{"type":"text","text":""}',
    "refusal": b'{"type":"text","text":""}',
    "reasoning": b'{"type":"thinking","thinking":"","signature":""}',
}


class Writer:
    """One streamed reply."""

    __slots__ = ("_delta", "_order", "_refused", "_usage")

    def __init__(self, request: Request) -> None:
        self._order = Order()
        self._usage = Usage()
        self._refused = False
        self._delta = b""
        """What comes before the JSON string of a delta of the open block."""

    def send(self, event: AnyEvent) -> bytes:
        """The bytes that this event adds.

        Raises: OrderError: a bug in whoever sent it.
        """
        closes, opens, ends = self._order.step(event)
        before = _stop(closes) if closes else b""
        if opens:
            before += self._open(opens, event)
        match event:
            case events.TextDelta(text) | events.ToolCallDelta(_, text) | events.RefusalDelta(text):
                return before + self._delta + _encode(text) + b"}}\n\n" if text else before
            case events.ReasoningDelta(text, signature):
                return before + self._reasoning(text, signature)
            case ToolCallStart() | events.Warning():
                return before
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
        self._refused = self._refused or block.kind == "refusal"
        self._delta = _index("content_block_delta", block) + b',"delta":' + _DELTAS[block.kind]
        if isinstance(event, ToolCallStart):
            shell = _encode({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
        else:
            shell = _BLOCKS[block.kind]
        return _index("content_block_start", block) + b',"content_block":' + shell + b"}\n\n"

    def _reasoning(self, text: str, signature: str) -> bytes:
        said = self._delta + _encode(text) + b"}}\n\n" if text else b""
        if signature:
            head = self._delta.removesuffix(_DELTAS["reasoning"])
            said += head + b'{"type":"signature_delta","signature":' + _encode(signature) + b"}}\n\n"
        return said

    def _finish(self, event: Finish) -> bytes:
        end = _end(finish_of(event, self._order), event.stop_sequence, self._refused)
        delta = b'"delta":' + _encode(end) + b',"usage":' + _encode(_usage(self._usage))
        return _event("message_delta", delta) + _event("message_stop")


def _event(kind: str, members: bytes = b"") -> bytes:
    return sse.encode(b'{"type":"%s"%s}' % (kind.encode(), b"," + members if members else b""), kind)


def _index(kind: str, block: Block) -> bytes:
    """The beginning of a block's event."""
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


def _end(finish: values.FinishReason, stop_sequence: str, refused: bool) -> dict[str, object]:
    reason = "refusal" if refused and finish != "length" else _STOP_REASONS[finish]
    return {"stop_reason": reason, "stop_sequence": stop_sequence or None if reason == "stop_sequence" else None}


def _usage(usage: Usage) -> dict[str, object]:
    counts: dict[str, object] = {
        "input_tokens": max(0, usage.input_tokens - usage.cached_input_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return counts


def write_reply(reply: Reply, request: Request) -> bytes:
    """The body of a whole reply."""
    refused = any(isinstance(part, values.Refusal) for part in reply.parts)
    blocks = [block for part in reply.parts for block in _block(part)]
    end = _end(reply.finish, reply.stop_sequence, refused)
    return _encode({**_message_head(reply, reply.usage), "content": blocks, **end})


def _block(part: Part) -> list[dict[str, object]]:
    match part:
        case Text(text) | values.Refusal(text):
            return [{"type": "text", "text": text}]
        case values.Reasoning(redacted=data) if data:
            return [{"type": "redacted_thinking", "data": data}]
        case values.Reasoning(text, signature):
            return [{"type": "thinking", "thinking": text, "signature": signature}]
        case ToolCall(id, name, arguments):
            return [{"type": "tool_use", "id": id, "name": name, "input": input_of(arguments)}]
        case values.Image() | values.Document() | values.Audio() | values.ToolResult() | Opaque():
            return []  # no event makes these
        case _:
            assert_never(part)


def input_of(arguments: values.JsonText) -> object:
    """The arguments as a block holds them."""
    try:
        return msgspec.Raw(shape.at(arguments.encode()).object())
    except RequestError:
        return {"__unparsedToolInput": {"raw": arguments}}


# Errors

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UPSTREAM: Final = {400: 400, 413: 413, 422: 400, 429: 429, 503: 529, 529: 529}
"""What an upstream's own status becomes; any other (a key of ours that it refuses, say) is 502."""


def status(error: DragomanError) -> int:
    """The HTTP status for an error that comes before the answer has begun."""
    if isinstance(error, errors.UpstreamError) and error.status is not None:
        return _UPSTREAM.get(error.status, error.status_hint)
    return 529 if isinstance(error, errors.BackendError) else error.status_hint


def write_error(error: DragomanError) -> bytes:
    """The body of an error."""
    number = status(error)
    body: dict[str, object] = {
        "type": _TYPES.get(number, "api_error" if number >= 500 else "invalid_request_error"),
        "message": error.message,
    }
    if isinstance(error, UnsupportedError) and error.path == "$.thread":
        body["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    return _encode({"type": "error", "error": body})


PING: Final = _event("ping")
"""What keeps a silent stream open."""
