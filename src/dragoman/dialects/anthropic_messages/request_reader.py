"""Reads a request of Anthropic Messages."""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec.structs import replace

from dragoman.core import messages as m
from dragoman.core.errors import RequestError, UnsupportedError
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import Message, Part, Request, Text, Tool, ToolCall, ToolChoice, UnknownPart
from dragoman.dialects.anthropic_messages import typed_request
from dragoman.dialects.anthropic_messages.client_tools import client_tool
from dragoman.dialects.anthropic_messages.computer_toolset import tools_of as toolset_tools
from dragoman.steps.read import FIELD, read_extension
from dragoman.text import json_cursor
from dragoman.text.json_cursor import NULL, Cursor, Fields
from dragoman.wire.request_bodies import UnusualError, read_parts, read_text, read_typed_body

BILLING: Final = "x-anthropic-billing-header"
"""Key in a request's `extra` for the billing line at the beginning of the system prompt."""
SEARCH_RESULT: Final = "search_result"
"""Key in a document's `extra` for the fields of a search result."""
_BILLING: Final = re.compile(rf"{BILLING}:[^\n]*\n*")
_ROLES: Final[tuple[Literal["user", "assistant", "system"], ...]] = ("user", "assistant", "system")
_MODES: Final[dict[str, Literal["auto", "required", "none", "named"]]] = {
    "auto": "auto",
    "any": "required",
    "none": "none",
    "tool": "named",
}


_BUDGETS: Final = ((16_384, "high"), (4_096, "medium"), (float("-inf"), "low"))
"""Minimum `budget_tokens` and the equivalent effort for APIs without a token budget; chosen by Dragoman."""


def read_request(body: bytes | str) -> Request:
    """Reads the body of a request.

    Raises:
        ClientError: The body is invalid; the message contains the problem and its position.
    """
    return read_typed(body) or read_any(body)


def read_typed(body: bytes | str) -> Request | None:
    """Returns the request, or None if the body is unusual or invalid (`typed_request`)."""
    return read_typed_body(body, typed_request.decode_body, _typed_request)


def read_any(body: bytes | str) -> Request:
    """Reads the body of a request, also in an unusual form; raises as `read_request`."""
    fields = json_cursor.parse_request(body).fields()
    return _request(fields, fields.require("max_tokens").integer(minimum=1))


def read_count(body: bytes | str) -> Request:
    """Reads the body of a token count request; it needs no `max_tokens`.

    Raises:
        ClientError: The body is invalid.
    """
    fields = json_cursor.parse_request(body).fields()
    return _request(fields, fields.integer("max_tokens", minimum=1))


def _request(fields: Fields, max_tokens: int | None) -> Request:
    if thread := fields.pop("thread"):
        # The SDKs' tool runners send it first, and retry without it after an error with this text.
        raise UnsupportedError("message threads are not stored here; send the whole conversation", thread.path)
    tools = _tools(fields.items("tools", json_cursor.MAX_TOOLS))
    schema, format_extra = _response_schema(fields.pop("output_config"))
    has_extension, steps = fields.has(FIELD), read_extension(fields.pop(FIELD))
    system, billing = _without_billing(read_parts(fields.pop("system"), _PARTS))
    messages = tuple(_message(item) for item in fields.require("messages").items())
    if not messages:
        raise RequestError("expected at least one message, got none", "$.messages")
    return Request(
        model=fields.require("model").string(),
        messages=((Message("system", system),) if system else ()) + messages,
        tools=tools,
        tool_choice=_tool_choice(chosen := fields.pop("tool_choice"), tools),
        accepts_parallel_calls=_allows_parallel(chosen),
        sampling=m.Sampling(
            temperature=fields.number("temperature", 0, 1),
            top_p=fields.number("top_p", 0, 1),
            top_k=fields.integer("top_k", minimum=0),
        ),
        max_tokens=max_tokens,
        stop=tuple(text for item in fields.items("stop_sequences", json_cursor.MAX_STOPS) if (text := item.string())),
        response_schema=schema,
        response_strict=bool(schema),
        stream=fields.flag("stream"),
        stream_usage=True,
        instruction_count=1 if system else 0,
        reasoning_effort=_effort(fields.get("thinking"), format_extra),
        extra={**billing, **format_extra, **fields.remaining()},
        dialect="anthropic_messages",
        steps=steps,
        has_extension=has_extension,
    )


def _typed_request(body: typed_request.MessagesBody, json: bytes) -> Request:
    tools = tuple(map(typed_request.tool_of, body.tools or ()))
    config = None if body.output_config == NULL else Cursor(body.output_config, "$.output_config")
    schema, format_extra = _response_schema(config)
    system, billing = _without_billing(typed_request.system_of(body.system))
    messages = tuple(map(typed_request.message_of, body.messages))
    forwarded = typed_request.forwarded(body, json)
    choice = body.tool_choice
    thinking = Cursor(forwarded["thinking"], "$.thinking") if "thinking" in forwarded else None
    return Request(
        model=body.model,
        messages=(Message("system", system), *messages) if system else messages,
        tools=tools,
        tool_choice=_typed_choice(choice, tools),
        accepts_parallel_calls=choice is not None and choice.disable_parallel_tool_use is False,
        sampling=m.Sampling(body.temperature, body.top_p, body.top_k),
        max_tokens=body.max_tokens,
        stop=tuple(filter(None, body.stop_sequences or ())),
        response_schema=schema,
        response_strict=bool(schema),
        stream=body.stream or False,
        stream_usage=True,
        instruction_count=1 if system else 0,
        reasoning_effort=_effort(thinking, format_extra) if thinking or format_extra else "",
        extra={**billing, **format_extra, **forwarded},
        dialect="anthropic_messages",
    )


def _typed_choice(choice: typed_request.StatedChoice | None, tools: tuple[Tool, ...]) -> ToolChoice:
    mode = _MODES[choice.type] if choice else "auto"
    if choice is None or (not tools and mode in ("auto", "none")):
        return ToolChoice()
    name = choice.name or "" if mode == "named" else ""
    if not tools or (mode == "named" and name not in {tool.name for tool in tools}):
        raise UnusualError
    return ToolChoice(mode, name, parallel_tool_calls=not choice.disable_parallel_tool_use)


def display_name(model: str) -> str:
    """Returns the name of a model in a model list: Claude Code ignores names unlike its vendor's.

    Text that Claude Code strips from a name (`[1m]`), and characters not allowed in a path, are escaped: `~5b1m~5d`.
    """
    if _VENDORS.match(model):
        return model
    return _PREFIX + _UNSAFE.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), model)


def resolve_display_name(name: str) -> str:
    """Returns the model with this listed name; any other name is returned unchanged."""
    escaped = name.removeprefix(_PREFIX)
    if escaped == name or not _ESCAPED.fullmatch(escaped):
        return name
    return unquote_to_bytes(escaped.replace("~", "%")).decode("utf-8", "replace")


_PREFIX: Final = "claude-"
_VENDORS: Final = re.compile(r"claude|anthropic", re.IGNORECASE)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._:/@+-]")
_ESCAPED: Final = re.compile(r"(?:[A-Za-z0-9._:/@+-]|~[0-9a-f]{2})+")


def _effort(thinking: Cursor | None, extra: m.ExtraFields) -> str:
    """Returns `output_config.effort`, or the effort equivalent to the thinking budget."""
    config = extra.get("output_config")
    value = json_cursor.Cursor(config, "$.output_config").fields().get("effort") if config is not None else None
    if value is not None and value.kind == "string":
        return value.string()
    fields = thinking.fields() if thinking is not None and thinking.kind == "object" else None
    kind = fields.get("type") if fields else None
    if fields is None or kind is None or kind.kind != "string":
        return ""
    if kind.string() == "disabled":
        return "none"
    budget = fields.get("budget_tokens")
    if budget is None or budget.kind != "number":
        return ""
    return next(effort for least, effort in _BUDGETS if budget.number() >= least)


def _response_schema(config: Cursor | None) -> tuple[m.JsonText, m.ExtraFields]:
    if config is None:
        return "", {}
    form = config.fields().pop("format")
    if form is None:
        return "", {"output_config": config.raw}
    inner = form.fields()
    inner.require("type").one_of(("json_schema",), "output format")
    return inner.require("schema").object(), {"output_config": config.raw}


def _without_billing(parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], m.ExtraFields]:
    """Returns the parts of the system prompt; Claude Code's billing line at the beginning becomes a separate block.

    The line tells the vendor what to charge; no model should read it.
    """
    match parts:
        case [Text(text, extra), *rest] if line := _BILLING.match(text):
            instructions = text[line.end() :]
            block = {"type": "text", "text": line[0], **({} if instructions else extra)}
            left = (Text(instructions, extra),) if instructions else ()
            return (*left, *rest), {BILLING: msgspec.Raw(msgspec.json.encode(block))}
    return parts, {}


def _message(cursor: Cursor) -> Message:
    fields = cursor.fields()
    role = fields.require("role").one_of(_ROLES, "role")
    # The first system message is that of `system`; a system message among the messages is not, even if it is first.
    own: m.Role = "developer" if role == "system" else role
    return Message(own, read_parts(fields.pop("content"), _PARTS), fields.remaining())


def _image(fields: Fields) -> m.Image | UnknownPart:
    media, source_extra = _media(fields.require("source"))
    return (
        m.Image(media, {**source_extra, **fields.remaining()})
        if media
        else UnknownPart("image", fields.raw, fields.path)
    )


def _document(fields: Fields) -> m.Document | UnknownPart:
    media, source_extra = _media(fields.require("source"))
    if media is None:
        return UnknownPart("document", fields.raw, fields.path)
    return m.Document(media, fields.string("title"), {**source_extra, **fields.remaining()})


def _search_result(fields: Fields) -> m.Document:
    """Reads a document, with the fields of its block as received."""
    own = {name: value.raw for name in ("source", "title", "content") if (value := fields.get(name))}
    source, title = fields.string("source"), fields.string("title")
    text = "\n".join(item.fields().require("text").string() for item in fields.items("content"))
    extra = {SEARCH_RESULT: msgspec.Raw(msgspec.json.encode(own)), **fields.remaining()}
    return m.Document(m.MediaSource("text/plain", text=text or title), title or source if text else "", extra)


def _media(cursor: Cursor) -> tuple[m.MediaSource | None, m.ExtraFields]:
    """Returns the source of a block (None if unknown), and its JSON if that contains more."""
    source = cursor.fields()
    match source.require("type").string():
        case "base64":
            media = m.MediaSource(source.string("media_type"), data=source.require("data").nonempty_string())
        case "text":
            media = m.MediaSource(source.string("media_type") or "text/plain", text=source.require("data").string())
        case "url":
            media = m.MediaSource(url=source.require("url").nonempty_string())
        case "file":
            media = m.MediaSource(file_id=source.require("file_id").nonempty_string())
        case "content":
            parts = read_parts(source.pop("content"), {"text": read_text})
            texts = [part.text for part in parts if isinstance(part, Text)]
            is_text_only = len(texts) == len(parts)  # with an image among them, the text alone would be misleading
            return m.MediaSource("text/plain", text="\n".join(texts)) if is_text_only else None, {"source": cursor.raw}
        case _:
            return None, {}
    return media, {"source": cursor.raw} if source.remaining() else {}


def _thinking(fields: Fields) -> m.Reasoning:
    return m.Reasoning(fields.string("thinking"), fields.string("signature"), extra=fields.remaining())


def _redacted(fields: Fields) -> m.Reasoning:
    return m.Reasoning("", redacted=fields.require("data").string(), extra=fields.remaining())


def _tool_use(fields: Fields) -> ToolCall:
    arguments = fields.object("input") or "{}"
    return ToolCall(
        fields.require("id").nonempty_string(), fields.require("name").nonempty_string(), arguments, fields.remaining()
    )


def _tool_result(fields: Fields) -> m.ToolResult:
    call_id = fields.require("tool_use_id").nonempty_string()
    parts = read_parts(fields.pop("content"), _RESULT_PARTS)
    return m.ToolResult(call_id, parts, fields.flag("is_error"), fields.remaining())


_RESULT_PARTS: Final[dict[str, Callable[[Fields], m.ResultPart]]] = {
    "text": read_text,
    "image": _image,
    "document": _document,
    SEARCH_RESULT: _search_result,
}
_PARTS: Final[dict[str, Callable[[Fields], Part]]] = {
    **_RESULT_PARTS,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
}


def _tools(items: Sequence[Cursor]) -> tuple[Tool, ...]:
    """Returns the tools, those of a toolset one by one unless the client has a tool of the same name."""
    listed = [(toolset_tools(item), item) for item in items]
    own = [_tool(item) for members, item in listed if members is None]
    if len(own) == len(listed):
        return tuple(own)
    names = {tool.name for tool in own}
    each = iter(own)
    return tuple(
        tool
        for members, _ in listed
        for tool in ([next(each)] if members is None else [member for member in members if member.name not in names])
    )


def _tool(cursor: Cursor) -> Tool:
    fields = cursor.fields()
    kind = fields.string("type") or "custom"
    if kind == "function" or ("input_schema" not in cursor.fields().remaining() and fields.get("function")):
        message = "expected a tool with name and input_schema, got one of OpenAI's APIs (type 'function')"
        raise RequestError(
            f"{message}; move its name and parameters up, or send the request to an OpenAI path", fields.path
        )
    if kind != "custom":
        tool_name = fields.string("name")
        if (run := client_tool(kind, tool_name, cursor.fields())) is not None:
            return replace(run, extra={"type": msgspec.Raw(msgspec.json.encode(kind)), **fields.remaining()})
        return Tool(tool_name, kind=kind, extra=cursor.fields().remaining())
    fields = cursor.fields()
    fields.pop("type")
    name, strict = fields.require("name").nonempty_string(NAME_LIMIT_CHARS), fields.get("strict")
    return Tool(
        name=name,
        description=fields.string("description"),
        parameters=fields.schema("input_schema") or Tool(name).parameters,
        extra=fields.remaining(),
        strict=strict is not None and strict.boolean(),
    )


def _allows_parallel(value: Cursor | None) -> bool:
    """Whether the choice allows parallel calls; by default the API leaves the number of calls to the model."""
    stated = value.fields().get("disable_parallel_tool_use") if value else None
    return stated is not None and not stated.boolean()


def _tool_choice(value: Cursor | None, tools: tuple[Tool, ...]) -> ToolChoice:
    if value is None:
        return ToolChoice()
    fields = value.fields()
    mode = _MODES[fields.require("type").one_of(_MODES, "tool choice")]
    if not tools:
        if mode in ("required", "named"):
            raise RequestError("expected tools to choose from, got none", value.path)
        return ToolChoice()
    name = fields.require("name").one_of([tool.name for tool in tools], "tool") if mode == "named" else ""
    return ToolChoice(mode, name, parallel_tool_calls=not fields.flag("disable_parallel_tool_use"))
