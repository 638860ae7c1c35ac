"""Reads a request of OpenAI Responses."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core import messages as m
from dragoman.core.errors import RequestError, UnsupportedError, one_of, quote
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import (
    ANY_OBJECT,
    Message,
    Part,
    PreviousResponseRef,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    UnknownPart,
)
from dragoman.schema.free_text import INPUT, free_text
from dragoman.steps.read import FIELD, read_extension
from dragoman.text import json_cursor
from dragoman.text.json_cursor import Cursor, Fields
from dragoman.wire.openai_fields import CHOICE_MODES
from dragoman.wire.request_bodies import media_from_url, read_parts

NAME: Final = "openai_responses"
_ITEM: Final = re.compile(r"[a-z]+_(.+)_(\d{1,6})", re.ASCII)
"""Matches an item id: a prefix for its type, the id of the response, and the item's number in it."""

NAMESPACE: Final = "in_namespace"
"""Key in a tool's `extra` for the name of its namespace, a string."""
ABOUT_NAMESPACE: Final = "about_namespace"
"""Key in a tool's `extra` for the fields of its namespace, an object that all tools of the namespace share."""
IN_ITEM: Final = "in_item"
"""Key in a tool's `extra` for the item that contained it: its number, the messages after it, and its fields."""
REDACTED: Final = "redacted:"
"""Prefix of the signature of reasoning that another vendor redacted; reasoning without text has a plain signature."""
JOINT: Final = "__"
"""Separator between the names of a namespace and of a tool; every API allows these characters."""

_ROLES: Final[tuple[m.Role, ...]] = ("user", "assistant", "system", "developer")
_UNKEPT: Final = {
    "conversation": "conversations are not kept here; send the whole of it as input",
    "prompt": "prompt templates are not kept here; send the text as instructions and input",
}


def read_any(body: bytes | str) -> Request:
    """Reads the body of a request in any form.

    Raises:
        ClientError: The body is invalid; the message contains the problem and its position.
    """
    return _request(json_cursor.parse_request(body).fields())


def read_count(body: bytes | str) -> Request:
    """Reads the body of a token count request: all fields are optional, also the model.

    Raises:
        ClientError: The body is invalid.
    """
    return _request(json_cursor.parse_request(body).fields(), partly=True)


def _request(fields: Fields, partly: bool = False) -> Request:
    for name, why in _UNKEPT.items():
        if value := fields.pop(name):
            raise UnsupportedError(why, value.path)
    if (background := fields.pop("background")) and background.boolean():
        raise UnsupportedError("background responses are not supported; leave it out", background.path)
    input = fields.pop("input") if partly else fields.require("input")
    messages, added = _conversation(input) if input else ((), [])
    offered = (*_tools(fields.items("tools", json_cursor.MAX_TOOLS)), *added)
    require_unique_names(offered)
    several = fields.get("parallel_tool_calls")
    has_extension, steps = fields.has(FIELD), read_extension(fields.pop(FIELD))
    tools, choice, chosen = _tool_choice(fields, offered)
    form, text_extra = text_format(fields.pop("text"))
    instructions = fields.string("instructions")
    previous = fields.pop("previous_response_id")
    system = (Message("system", (Text(instructions),)),) if instructions else ()
    fields.pop("stream_options")
    return Request(
        model=fields.string("model") if partly else fields.require("model").string(),
        messages=system + messages,
        tools=tools,
        tool_choice=choice,
        sampling=m.Sampling(temperature=fields.number("temperature", 0, 2), top_p=fields.number("top_p", 0, 1)),
        max_tokens=fields.integer("max_output_tokens", minimum=1),
        response_schema=schema_of_format(form),
        response_name=form.string("name") if form else "",
        response_description=form.string("description") if form else "",
        response_strict=form.flag("strict") if form else False,
        stream=fields.flag("stream"),
        stream_usage=True,
        reasoning_effort=effort_of(fields.get("reasoning")),
        previous_response=PreviousResponseRef(previous.nonempty_string().removeprefix("resp_"), path=previous.path)
        if previous
        else None,
        instruction_count=len(system),
        store=fields.flag("store", default=True),
        extra={**text_extra, **chosen, **fields.remaining()},
        dialect=NAME,
        steps=steps,
        has_extension=has_extension,
        accepts_parallel_calls=several is not None and several.boolean(),
    )


def effort_of(value: Cursor | None) -> str:
    """Returns the requested value; other types are left for the server to reject."""
    effort = value.fields().get("effort") if value is not None and value.kind == "object" else None
    return effort.string() if effort is not None and effort.kind == "string" else ""


def text_format(value: Cursor | None) -> tuple[Fields | None, m.ExtraFields]:
    """Returns the format in `text`, and the field that is forwarded."""
    if value is None:
        return None, {}
    form = value.fields().pop("format")
    return form.fields() if form else None, {"text": value.raw}


def schema_of_format(form: Fields | None) -> m.JsonText:
    """Returns the JSON Schema of a format; "" for text."""
    if form is None:
        return ""
    match form.require("type").one_of(("text", "json_object", "json_schema"), "text format"):
        case "text":
            return ""
        case "json_object":
            return ANY_OBJECT
        case _:
            return form.require("schema").object()


def _conversation(value: Cursor) -> tuple[tuple[Message, ...], list[Tool]]:
    """Returns the messages of the input, and the tools that were added in between."""
    if value.kind == "string":
        return (Message("user", read_parts(value, _PARTS)),), []
    if value.kind != "array":
        raise value.wrong("string or array")
    turns = Turns()
    added: list[tuple[int, Cursor]] = []
    for item in value.items():
        fields = item.fields()
        kind = fields.string("type") or "message"
        if kind != "additional_tools":
            turns.add(message_of_item(item, kind, fields), new_turn=bool(added) and added[-1][0] == turns.count)
        elif fields.require("tools").items(json_cursor.MAX_TOOLS):
            added.append((turns.count, item))
    messages = turns.messages()
    if not messages:
        raise RequestError("expected at least one item with content, got none", value.path)
    tools = [tool for n, (at, item) in enumerate(added) for tool in _added(item, n, len(messages) - at)]
    return tuple(messages), tools


def _added(item: Cursor, number: int, before: int) -> list[Tool]:
    """Returns the tools of an `additional_tools` item, each with a note about the item."""
    fields = item.fields()
    listed = fields.require("tools").items(json_cursor.MAX_TOOLS)
    note = {IN_ITEM: msgspec.Raw(msgspec.json.encode({"number": number, "before": before, "item": fields.remaining()}))}
    return [replace(tool, extra={**tool.extra, **note}) for tool in _tools(listed)]


class Turns:
    """Collects messages; items of one assistant turn become one message.

    Texts of two items are not merged, because each has its own id.
    """

    def __init__(self) -> None:
        self._turns: list[tuple[m.Role, list[Part], dict[str, msgspec.Raw]]] = []
        self._has_text = False
        """Whether the last turn contains text."""

    @property
    def count(self) -> int:
        """Returns the number of turns so far."""
        return len(self._turns)

    def add(self, message: Message, *, new_turn: bool) -> None:
        """Adds the message of the next item; with `new_turn` it always begins a new turn."""
        has_text = _has_text(message)
        role, parts, extra = self._turns[-1] if self._turns else ("user", [], {})
        continues = message.role == role == "assistant" and not (new_turn or (has_text and self._has_text))
        if continues:
            parts += message.parts
            extra |= message.extra
        else:
            self._turns.append((message.role, [*message.parts], {**message.extra}))
        self._has_text = has_text or (continues and self._has_text)

    def messages(self) -> tuple[Message, ...]:
        """Returns all messages."""
        return tuple(Message(role, tuple(parts), extra) for role, parts, extra in self._turns)


def _has_text(message: Message) -> bool:
    return any(
        not isinstance(part, m.Reasoning | ToolCall | UnknownPart | m.PreviousResponseRef) for part in message.parts
    )


def message_of_item(cursor: Cursor, kind: str, fields: Fields) -> Message:
    """Returns one item as a message."""
    if kind == "item_reference":
        return Message("assistant", (_reference(fields.require("id")),))
    if kind == "message":
        role = fields.require("role").one_of(_ROLES, "role")
        return Message(role, read_parts(fields.pop("content"), _PARTS), fields.remaining())
    if kind in _CALLS:
        return Message("assistant", (_CALLS[kind](fields),))
    if kind in ("function_call_output", "custom_tool_call_output"):
        return Message("tool", (_result(fields, kind),))
    # Items of the vendor's own tools were written by a model; the rest is from the client and must not be dropped.
    vendors = kind.endswith("_call") or kind in ("mcp_list_tools", "mcp_approval_request")
    vendors = vendors or (kind == "tool_search_output" and fields.string("execution") != "client")
    return Message("assistant" if vendors else "user", (UnknownPart(kind, cursor.raw, cursor.path),))


def _reference(id: Cursor) -> PreviousResponseRef:
    """Returns the reference to a part of an earlier response, by the id of its item."""
    match = _ITEM.fullmatch(id.nonempty_string())
    return (
        PreviousResponseRef(match[1], int(match[2]), id.path)
        if match
        else PreviousResponseRef(id.nonempty_string(), 0, id.path)
    )


def _function_call(fields: Fields) -> Part:
    arguments = fields.string("arguments") or "{}"
    name, namespace_extra = _called_function(fields)
    return ToolCall(
        fields.require("call_id").nonempty_string(), name, arguments, {**namespace_extra, **fields.remaining()}
    )


def _custom_call(fields: Fields) -> Part:
    arguments = json.dumps({INPUT: fields.string("input")}, ensure_ascii=False)
    call_id, (name, namespace_extra) = fields.require("call_id").nonempty_string(), _called_function(fields)
    kind = {"type": msgspec.Raw(b'"custom_tool_call"')}
    return ToolCall(call_id, name, arguments, {**kind, **namespace_extra, **fields.remaining()})


def _called_function(fields: Fields) -> tuple[str, m.ExtraFields]:
    """Returns the name under which the tool is offered, and the namespace in it."""
    name, space = fields.require("name").nonempty_string(), fields.pop("namespace")
    return (f"{space.nonempty_string()}{JOINT}{name}", {"namespace": space.raw}) if space else (name, {})


def _reasoning(fields: Fields) -> Part:
    fields_of_text = {name: fields.pop(name) for name in ("summary", "content")}
    texts = {name: [i.fields().require("text").string() for i in c.items()] for name, c in fields_of_text.items() if c}
    text = "\n\n".join(texts.get("content") or texts.get("summary") or [])
    # One text of the summary is written again as such; anything else would be lost.
    least = {"summary": 0 if texts.get("content") else 1, "content": 0}
    text_fields = {n: c.raw for n, c in fields_of_text.items() if c and len(texts[n]) > least[n]}
    proof, extra = fields.string("encrypted_content"), {**text_fields, **fields.remaining()}
    if proof.startswith(REDACTED):
        return m.Reasoning(text, redacted=proof.removeprefix(REDACTED), extra=extra)
    return m.Reasoning(text, proof, extra=extra)


_CALLS: Final[dict[str, Callable[[Fields], Part]]] = {
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "reasoning": _reasoning,
}


def _result(fields: Fields, kind: str) -> m.ToolResult:
    parts = read_parts(fields.pop("output"), _RESULT_PARTS)
    call_id = fields.require("call_id").nonempty_string()
    custom = {"type": msgspec.Raw(b'"custom_tool_call_output"')} if kind != "function_call_output" else {}
    return m.ToolResult(call_id, parts, extra={**custom, **fields.remaining()})


def _text(fields: Fields) -> Text:
    return Text(fields.require("text").string(), fields.remaining())


def _image(fields: Fields) -> m.Image:
    url, file_id = fields.string("image_url"), fields.string("file_id")
    if not url and not file_id:
        raise RequestError("missing required field 'image_url' or 'file_id'", fields.path)
    return m.Image(media_from_url(url) if url else m.MediaSource(file_id=file_id), fields.remaining())


def _file(fields: Fields) -> m.Document:
    title, data, url, file_id = (fields.string(name) for name in ("filename", "file_data", "file_url", "file_id"))
    if not (data or url or file_id):
        raise RequestError("missing required field 'file_data', 'file_url' or 'file_id'", fields.path)
    bare = m.MediaSource(data=data) if data else m.MediaSource(url=url, file_id="" if url else file_id)
    return m.Document(media_from_url(data) if data.startswith("data:") else bare, title, fields.remaining())


def _refusal(fields: Fields) -> m.Refusal:
    return m.Refusal(fields.require("refusal").string(), fields.remaining())


def _audio(fields: Fields) -> m.Audio:
    inner = fields.require("input_audio").fields()
    return m.Audio(m.MediaSource(f"audio/{inner.require('format').string()}", inner.require("data").string()))


_RESULT_PARTS: Final[dict[str, Callable[[Fields], m.ResultPart]]] = {
    "input_audio": _audio,
    "input_text": _text,
    "output_text": _text,
    "input_image": _image,
    "input_file": _file,
}
_PARTS: Final[dict[str, Callable[[Fields], Part]]] = {**_RESULT_PARTS, "refusal": _refusal}


def _tools(items: list[Cursor]) -> list[Tool]:
    return [tool for item in items for tool in tools_of(item)]


def tools_of(cursor: Cursor) -> list[Tool]:
    """Returns the tool, or those of a namespace; each tool keeps the fields of the namespace."""
    fields = cursor.fields()
    if fields.string("type") != "namespace":
        return [_tool(cursor)]
    about = {name: raw for name, raw in cursor.fields().remaining().items() if name != "tools"}
    named = fields.require("name")
    space, namespace_extra = (
        named.nonempty_string(),
        {NAMESPACE: named.raw, ABOUT_NAMESPACE: msgspec.Raw(msgspec.json.encode(about))},
    )
    tools = [_tool(item) for item in fields.items("tools", json_cursor.MAX_TOOLS)]
    return [replace(tool, name=f"{space}{JOINT}{tool.name}", extra={**tool.extra, **namespace_extra}) for tool in tools]


def _tool(cursor: Cursor) -> Tool:
    fields = cursor.fields()
    kind = fields.require("type")
    if kind.string() not in ("function", "custom"):
        return Tool(fields.string("name"), kind=kind.string(), extra=cursor.fields().remaining())
    name, description = fields.require("name").nonempty_string(NAME_LIMIT_CHARS), fields.string("description")
    if kind.string() == "custom":
        form = fields.pop("format")
        extra = {"type": kind.raw, **({"format": form.raw} if form else {}), **fields.remaining()}
        return Tool(name, description, _free_text(form), extra)
    parameters, strict = fields.schema("parameters") or Tool(name).parameters, fields.get("strict")
    return Tool(name, description, parameters, fields.remaining(), strict=strict is not None and strict.boolean())


def _free_text(form: Cursor | None) -> m.JsonText:
    """Returns the JSON Schema under which a custom tool is offered."""
    fields = form.fields() if form else None
    if fields is None or fields.require("type").string() != "grammar":
        return free_text()
    return free_text(fields.require("syntax").string(), fields.require("definition").string())


def require_unique_names(tools: tuple[Tool, ...]) -> None:
    """Rejects tools whose names become equal after their namespace is prepended."""
    spaces: dict[str, str] = {}
    for tool in tools:
        space = namespace_of(tool)
        if tool.kind == "function" and spaces.setdefault(tool.name, space) != space:
            message = f"expected names that stay apart as namespace{JOINT}tool, got {tool.name!r} twice"
            raise RequestError(message, "$.tools")


def namespace_of(tool: Tool) -> str:
    """Returns the name of the tool's namespace, or ""."""
    named = tool.extra.get(NAMESPACE)
    return json_cursor.parse(bytes(named)).string() if named else ""


def _tool_choice(fields: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice, m.ExtraFields]:
    """Returns the tools that may be called, the tool choice, and the fields left over."""
    value, parallel = fields.pop("tool_choice"), fields.flag("parallel_tool_calls", default=True)
    word = value.one_of(CHOICE_MODES, "tool choice") if value and value.kind != "object" else "auto"
    if value and not tools and (value.kind == "object" or word == "required"):
        raise RequestError("expected tools to choose from, got none", value.path)
    if not tools:
        return tools, ToolChoice(parallel_tool_calls=parallel), {}
    if value is None or value.kind != "object":
        return tools, ToolChoice(word, parallel_tool_calls=parallel), {}
    inner = value.fields()
    offered = dict.fromkeys(tool.name for tool in tools if tool.kind == "function")
    match inner.require("type").string():
        case "function" | "custom":
            return tools, ToolChoice("named", _named(inner, offered), parallel), {}
        case "allowed_tools":
            listed, mode = inner.require("tools"), inner.require("mode").one_of(CHOICE_MODES, "mode")
        case kind:
            return tools, ToolChoice("named", kind, parallel), {"tool_choice": value.raw}
    allowed = {_allowed(item.fields(), offered) for item in listed.items()}
    left = tuple(tool for tool in tools if (tool.kind, tool.name) in allowed)
    if mode == "required" and not left:
        raise RequestError("expected tools to choose from, got none", listed.path)
    return left, ToolChoice(mode, parallel_tool_calls=parallel), {}


def _named(fields: Fields, offered: Mapping[str, None]) -> str:
    """Returns the name of the offered tool that is meant."""
    name, space = fields.require("name"), fields.pop("namespace")
    if space is None:
        return name.one_of(offered, "tool")
    joint = f"{space.nonempty_string()}{JOINT}{name.nonempty_string()}"
    if joint not in offered:
        raise RequestError(f"unknown tool {quote(joint)}{one_of(joint, offered, 'expected ')}", name.path)
    return joint


def _allowed(fields: Fields, offered: Mapping[str, None]) -> tuple[str, str]:
    kind = fields.require("type").string()
    return ("function", _named(fields, offered)) if kind in ("function", "custom") else (kind, fields.string("name"))
