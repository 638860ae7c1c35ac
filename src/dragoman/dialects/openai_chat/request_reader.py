"""Reads a request of OpenAI Chat Completions."""

import json
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from dragoman.core import messages
from dragoman.core.errors import RequestError, quote
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import ANY_OBJECT, Message, Part, Request, Tool, ToolCall, ToolChoice, UnknownPart
from dragoman.dialects.openai_chat.typed_request import read_typed
from dragoman.schema.free_text import free_text
from dragoman.steps.read import FIELD, read_extension
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.openai_fields import CHOICE_MODES, is_custom
from dragoman.wire.request_bodies import media_from_url, read_parts, read_text

_ROLES: Final[tuple[messages.Role, ...]] = ("system", "developer", "user", "assistant", "tool")
_FREE: Final[tuple[Literal["none", "auto"], ...]] = ("none", "auto")
IN_FIELD: Final = "in_field"
"""Key in the `extra` of reasoning: the name of its field, unless it is `reasoning_content`."""
CUSTOM: Final = "custom"
"""The type of custom tools, which take free text, and the field that contains them."""
FUNCTIONS: Final = "functions"
"""Key in a request's `extra`: the request uses `functions` of 2023, and its reply must too."""
OUTER: Final = "outer."
"""Prefix of keys in `extra` for fields next to, not inside, the object of a block."""


def read_request(body: bytes | str) -> Request:
    """Reads the body of a request.

    Raises:
        ClientError: The body is invalid; the message contains the problem and its position.
    """
    return read_typed(body) or read_any(body)


def read_any(body: bytes | str) -> Request:
    """Reads the body of a request, also in an unusual form; raises as `read_request`."""
    fields = json_cursor.parse_request(body).fields()
    choices = fields.integer("n", minimum=1)
    several = fields.get("parallel_tool_calls")
    functions = fields.get(FUNCTIONS)
    has_extension, steps = fields.has(FIELD), read_extension(fields.pop(FIELD))
    tools, choice = _functions(fields) if functions else _tools(fields)
    reply, format_extra = _response_format(fields.pop("response_format"))
    options = fields.pop("stream_options")
    limits = [_limit(limit) for limit in (fields.get("max_completion_tokens"), fields.pop("max_tokens"))]
    return Request(
        model=fields.require("model").string(),
        messages=_messages(fields.require("messages")),
        tools=tools,
        tool_choice=choice,
        sampling=messages.Sampling(
            temperature=fields.number("temperature", 0, 2),
            top_p=fields.number("top_p", 0, 1),
            top_k=fields.integer("top_k"),
            seed=fields.integer("seed"),
            presence_penalty=fields.number("presence_penalty", -2, 2),
            frequency_penalty=fields.number("frequency_penalty", -2, 2),
        ),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        stop=_stop(fields.pop("stop")),
        response_schema=reply.schema,
        response_name=reply.name,
        response_description=reply.description,
        response_strict=reply.strict,
        stream=fields.flag("stream"),
        stream_usage=options.fields().flag("include_usage") if options else False,
        reasoning_effort=_effort(fields.get("reasoning_effort")),
        choices=choices or 1,
        extra={**format_extra, **fields.remaining()},
        dialect="openai_chat",
        steps=steps,
        has_extension=has_extension,
        accepts_parallel_calls=several is not None and several.boolean(),
    )


def _effort(value: Cursor | None) -> str:
    """Returns the requested value; other types are left for the server to reject."""
    return value.string() if value is not None and value.kind == "string" else ""


def _limit(value: Cursor | None) -> int | None:
    return None if value is None or value.integer() == -1 else value.integer(minimum=1)


def _stop(value: Cursor | None) -> tuple[str, ...]:
    if value is None:
        return ()
    if value.kind not in ("string", "array"):
        raise value.wrong("string, array of strings or null")
    items = [value] if value.kind == "string" else value.items(json_cursor.MAX_STOPS)
    return tuple(text for text in (item.string() for item in items) if text)


class _Reply(NamedTuple):
    """Reads the schema of the response."""

    schema: messages.JsonText = ""
    name: str = ""
    description: str = ""
    strict: bool = False


def _response_format(value: Cursor | None) -> tuple[_Reply, messages.ExtraFields]:
    if value is None:
        return _Reply(), {}
    fields = value.fields()
    kind = fields.require("type")
    match kind.one_of(("text", "json_object", "json_schema"), "response format"):
        case "text":
            return _Reply(), {}
        case "json_object":  # may contain a schema in llama.cpp's server
            outer_schema = fields.object("schema")
            return _Reply(outer_schema or ANY_OBJECT), {"response_format": value.raw} if outer_schema else {}
    inner = fields.require("json_schema").fields()
    named = _Reply(inner.schema("schema"), inner.string("name"), inner.string("description"), inner.flag("strict"))
    return named if named.schema else _Reply(ANY_OBJECT), {"response_format": value.raw}


def _messages(value: Cursor) -> tuple[Message, ...]:
    items = value.items()
    if not items:
        raise RequestError("expected at least one message, got none", value.path)
    function_ids: dict[str, str] = {}
    return tuple(_message(item, f"function_{n}", function_ids) for n, item in enumerate(items))


def _message(cursor: Cursor, generated_id: str, function_ids: dict[str, str]) -> Message:
    """Reads a message.

    Args:
        cursor: One item of `messages`.
        generated_id: Id for a `function_call`, which has none.
        function_ids: Ids of the last `function_call` of each function, by name; updated if the message has one.
    """
    fields = cursor.fields()
    named = fields.require("role")
    role: messages.Role = "tool"
    if named.kind != "string" or named.string() != "function":
        role = named.one_of(_ROLES, "role")
    content = fields.pop("content")
    parts: tuple[Part, ...]
    if role == "tool":
        call_id = (
            fields.require("tool_call_id").nonempty_string()
            if named.string() == "tool"
            else _answered(fields, function_ids)
        )
        parts = (messages.ToolResult(call_id, read_parts(content, _RESULT_PARTS)),)
    elif role == "assistant":
        parts = (*_assistant(fields, read_parts(content, _PARTS)), *_function_call(fields, generated_id, function_ids))
    else:
        parts = read_parts(content, _PARTS)
    return Message(role, parts, fields.remaining())


def _assistant(fields: Fields, content: tuple[Part, ...]) -> tuple[Part, ...]:
    usual, other, refusal = (fields.string(name) for name in ("reasoning_content", "reasoning", "refusal"))
    named: messages.ExtraFields = {} if usual else {IN_FIELD: msgspec.Raw(b'"reasoning"')}
    before = (messages.Reasoning(usual or other, extra=named),) if usual or other else ()
    after = (messages.Refusal(refusal),) if refusal else ()
    return (*before, *content, *after, *(_call(item) for item in fields.items("tool_calls")))


def _function_call(fields: Fields, generated_id: str, function_ids: dict[str, str]) -> tuple[Part, ...]:
    """Reads a `function_call` of 2023: `{"name": "weather", "arguments": "{…}"}`."""
    if (value := fields.pop("function_call")) is None:
        return ()
    function = value.fields()
    name, arguments = function.require("name").nonempty_string(), _arguments(function)
    function_ids[name] = generated_id
    return (ToolCall(generated_id, name, arguments),)


def _answered(fields: Fields, function_ids: dict[str, str]) -> str:
    """Returns the id of the call of a `function` result, which has only a name."""
    name = fields.require("name")
    if name.string() not in function_ids:
        raise RequestError(f"expected a function_call of {quote(name.string())} before its result, got none", name.path)
    return function_ids[name.string()]


def _arguments(function: Fields) -> messages.JsonText:
    arguments = function.pop("arguments")
    return (arguments.text if arguments.kind == "object" else arguments.string()) or "{}" if arguments else "{}"


def _call(cursor: Cursor) -> Part:
    fields = cursor.fields()
    kind = fields.pop("type")
    if kind and kind.string() == "custom":
        return _custom_call(fields, kind)
    if kind and kind.string() != "function":
        return UnknownPart(kind.string(), cursor.raw, cursor.path)
    function = fields.require("function").fields()
    call_id, name, arguments = (
        fields.require("id").nonempty_string(),
        function.require("name").nonempty_string(),
        _arguments(function),
    )
    function.pop("parsed_arguments")  # the openai package sends its own parsed arguments along
    return ToolCall(call_id, name, arguments, {**function.remaining(), **_outer(fields)})


def _custom_call(fields: Fields, kind: Cursor) -> ToolCall:
    """Returns free text as the only argument of a function."""
    call = fields.require("custom").fields()
    arguments = json.dumps({"input": call.string("input")}, ensure_ascii=False)
    call_id, name = fields.require("id").nonempty_string(), call.require("name").nonempty_string()
    return ToolCall(call_id, name, arguments, {**call.remaining(), "type": kind.raw, **_outer(fields)})


def _outer(fields: Fields) -> messages.ExtraFields:
    return {OUTER + name: raw for name, raw in fields.remaining().items()}


def _image(fields: Fields) -> messages.Image:
    source = fields.require("image_url")
    if source.kind == "string":
        return messages.Image(media_from_url(source.nonempty_string()), _outer(fields))
    inner = source.fields()
    return messages.Image(
        media_from_url(inner.require("url").nonempty_string()), {**inner.remaining(), **_outer(fields)}
    )


def _audio(fields: Fields) -> messages.Audio:
    inner = fields.require("input_audio").fields()
    source = messages.MediaSource(
        media_type=f"audio/{inner.require('format').string()}", data=inner.require("data").string()
    )
    return messages.Audio(source, {**inner.remaining(), **_outer(fields)})


def _file(fields: Fields) -> messages.Document:
    inner = fields.require("file").fields()
    title, data, file_id = (inner.string(name) for name in ("filename", "file_data", "file_id"))
    if not data and not file_id:
        raise RequestError("missing required field 'file_data' or 'file_id'", inner.path)
    source = (
        media_from_url(data)
        if data.startswith("data:")
        else messages.MediaSource(data=data, file_id="" if data else file_id)
    )
    return messages.Document(source, title, {**inner.remaining(), **_outer(fields)})


def _refusal(fields: Fields) -> messages.Refusal:
    kind = {"type": msgspec.Raw(b'"refusal"')}  # a part of the content, not a field of the message
    return messages.Refusal(fields.require("refusal").string(), {**kind, **fields.remaining()})


_RESULT_PARTS: Final[dict[str, Callable[[Fields], messages.ResultPart]]] = {
    "text": read_text,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
_PARTS: Final[dict[str, Callable[[Fields], Part]]] = {**_RESULT_PARTS, "refusal": _refusal}


def _tool(cursor: Cursor) -> Tool:
    fields = cursor.fields()
    kind = fields.require("type").string()
    if kind == CUSTOM:
        return _custom(cursor.fields())
    if kind != "function":
        inner = fields.pop(kind)
        named = inner.fields() if inner and inner.kind == "object" else fields
        return Tool(named.string("name"), kind=kind, extra=cursor.fields().remaining())
    function = _function(fields.require("function").fields())
    return replace(function, extra={**function.extra, **_outer(fields)})


def _custom(fields: Fields) -> Tool:
    """Returns a custom tool as a function with one string parameter."""
    fields.pop("type")
    custom = fields.require(CUSTOM).fields()
    name, description = custom.require("name").nonempty_string(NAME_LIMIT_CHARS), custom.string("description")
    form = custom.get("format")
    inner = form.fields().pop("grammar") if form else None
    grammar = inner.fields() if inner else None
    definition = (grammar.require("syntax").string(), grammar.require("definition").string()) if grammar else ("", "")
    kind = {"type": msgspec.Raw(b'"custom"')}
    return Tool(name, description, free_text(*definition), {**custom.remaining(), **kind, **_outer(fields)})


def custom_names(request: Request) -> frozenset[str]:
    """Returns the names of custom tools, which take free text."""
    return frozenset(tool.name for tool in request.tools if is_custom(tool))


def _function(function: Fields) -> Tool:
    name = function.require("name").nonempty_string(NAME_LIMIT_CHARS)
    parameters = function.schema("parameters") or Tool(name).parameters
    described, strict = function.string("description"), function.get("strict")
    is_strict = strict is not None and strict.boolean()
    return Tool(name, described, parameters, function.remaining(), strict=is_strict)


def _functions(fields: Fields) -> tuple[tuple[Tool, ...], ToolChoice]:
    """Reads the `functions` of 2023, of which a reply calls at most one, and `function_call`, their tool choice."""
    for name in ("tools", "tool_choice", "parallel_tool_calls"):
        if value := fields.pop(name):
            raise RequestError(f"expected tools or functions, got {name} next to functions", value.path)
    listed = fields.get(FUNCTIONS)
    tools = tuple(_function(item.fields()) for item in listed.items(json_cursor.MAX_TOOLS)) if listed else ()
    value = fields.pop("function_call")
    if value is None or value.kind != "object":
        return tools, ToolChoice(value.one_of(_FREE, "function call") if value else "auto", parallel_tool_calls=False)
    named = value.fields().require("name").one_of([tool.name for tool in tools], "function")
    return tools, ToolChoice("named", named, parallel_tool_calls=False)


def _tools(fields: Fields) -> tuple[tuple[Tool, ...], ToolChoice]:
    """Returns the tools that may be called, and the tool choice."""
    tools = tuple(_tool(item) for item in fields.items("tools", json_cursor.MAX_TOOLS))
    if value := fields.pop("function_call"):
        raise RequestError("expected functions to choose from, got none", value.path)
    value, parallel = fields.pop("tool_choice"), fields.flag("parallel_tool_calls", default=True)
    word = value.one_of(CHOICE_MODES, "tool choice") if value and value.kind != "object" else "auto"
    if value and not tools and (value.kind == "object" or word == "required"):
        raise RequestError("expected tools to choose from, got none", value.path)
    if not tools:
        return tools, ToolChoice()
    if value is None or value.kind != "object":
        return tools, ToolChoice(word, parallel_tool_calls=parallel)
    inner = value.fields()
    kind = inner.require("type").one_of(("function", "custom", "allowed_tools"), "tool choice")
    named = inner.require(kind).fields()
    offered = dict.fromkeys(tool.name for tool in tools if tool.name)
    if kind != "allowed_tools":
        return tools, ToolChoice("named", named.require("name").one_of(offered, "tool"), parallel)
    listed, mode = named.require("tools"), named.require("mode").one_of(CHOICE_MODES, "mode")
    allowed = {_allowed(item.fields()).one_of(offered, "tool") for item in listed.items()}
    if mode == "required" and not allowed:
        raise RequestError("expected tools to choose from, got none", listed.path)
    return tuple(tool for tool in tools if tool.name in allowed), ToolChoice(mode, parallel_tool_calls=parallel)


def _allowed(fields: Fields) -> Cursor:
    return fields.require(fields.require("type").string()).fields().require("name")
