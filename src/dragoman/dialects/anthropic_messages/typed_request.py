"""Fast path for requests of Messages in the form that most clients send.

The body is decoded into typed structs at once, in a tenth of the time that cursors take. `decode_body` refuses
anything that these structs do not describe: unusual fields, several unmodelled fields in one block, and all invalid
values. `request_reader` then reads the body from the beginning, to accept it or to report where it is invalid.
"""

from operator import attrgetter
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from dragoman.core import messages as m
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import Message, Part, Text, Tool, ToolCall
from dragoman.text.json_cursor import MAX_STOPS, MAX_TOOLS, NULL
from dragoman.wire.request_bodies import Count, Name, bool_of, extra_of, object_of, one_extra, schema_of

_CACHE: Final = "cache_control"
_Fraction = Annotated[float, Meta(ge=0, le=1)]


class _Block(Struct, tag_field="type", forbid_unknown_fields=True, gc=False):
    cache_control: Raw = NULL


class _Text(_Block, tag="text", kw_only=True, gc=False):
    text: str


class _Base64(Struct, tag_field="type", tag="base64", forbid_unknown_fields=True, gc=False):
    media_type: str
    data: Name


class _Image(_Block, tag="image", kw_only=True, gc=False):
    source: _Base64


class _Thinking(_Block, tag="thinking", kw_only=True, gc=False):
    thinking: str | None = None
    signature: str | None = None


class _Redacted(_Block, tag="redacted_thinking", kw_only=True, gc=False):
    data: str


class _ToolUse(_Block, tag="tool_use", kw_only=True, gc=False):
    id: Name
    name: Name
    input: Raw = NULL


class _Result(_Block, tag="tool_result", kw_only=True, gc=False):
    tool_use_id: Name
    content: str | list[_Text | _Image] | None = None
    is_error: bool | None = None


_AnyBlock: TypeAlias = _Text | _Image | _Thinking | _Redacted | _ToolUse | _Result
_Content: TypeAlias = str | list[_AnyBlock] | None


class _Message(Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["user", "assistant", "system"]
    content: _Content = None
    output_config: Raw = NULL


class _Tool(Struct, forbid_unknown_fields=True, gc=False):
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT_CHARS)]
    input_schema: Raw
    description: str | None = None
    type: Literal["custom"] | None = None
    cache_control: Raw = NULL
    defer_loading: Raw = NULL
    eager_input_streaming: Raw = NULL
    strict: Raw = NULL


class StatedChoice(Struct, gc=False):
    """A tool choice."""

    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessagesBody(Struct, forbid_unknown_fields=True, gc=False):
    """A request in the usual form; `thread` and all other fields are refused."""

    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_tokens: Count
    system: str | list[_Text] | None = None
    tools: Annotated[list[_Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: StatedChoice | None = None
    temperature: _Fraction | None = None
    top_p: _Fraction | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    stream: bool | None = None
    thread: None = None
    output_config: Raw = NULL
    # All fields from here on are forwarded.
    cache_control: Raw = NULL
    container: Raw = NULL
    context_management: Raw = NULL
    diagnostics: Raw = NULL
    inference_geo: Raw = NULL
    mcp_servers: Raw = NULL
    metadata: Raw = NULL
    service_tier: Raw = NULL
    speed: Raw = NULL
    thinking: Raw = NULL


_FIELDS: Final = MessagesBody.__struct_fields__
_FORWARDED: Final = _FIELDS[_FIELDS.index("cache_control") :]
_forwarded_of: Final = attrgetter(*_FORWARDED)
_NOTHING: Final = (NULL,) * len(_FORWARDED)
_OF_TOOL: Final = ("cache_control", "defer_loading", "eager_input_streaming", "strict")
_of_tool: Final = attrgetter(*_OF_TOOL)
_NONE_OF_TOOL: Final = (NULL,) * len(_OF_TOOL)
decode_body: Final = Decoder(MessagesBody).decode


def forwarded(body: MessagesBody, json: bytes) -> m.ExtraFields:
    """Returns the fields that are forwarded."""
    values = _forwarded_of(body)
    return {} if values == _NOTHING else extra_of(_FORWARDED, values, json)


def message_of(message: _Message) -> Message:
    """Returns the message."""
    role: m.Role = "developer" if message.role == "system" else message.role
    return Message(role, parts_of(message.content), one_extra("output_config", message.output_config))


def parts_of(content: _Content) -> tuple[Part, ...]:
    """Returns the parts of the content."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(_part(block) for block in content if not _is_empty(block))


def _is_empty(block: _Block) -> bool:
    return isinstance(block, _Text) and not block.text and block.cache_control == NULL


def _part(block: _AnyBlock) -> Part:
    extra = one_extra(_CACHE, block.cache_control)
    if isinstance(block, _ToolUse):
        return ToolCall(block.id, block.name, object_of(block.input), extra)
    if isinstance(block, _Result):
        return _result(block, extra)
    if isinstance(block, _Thinking):
        return m.Reasoning(block.thinking or "", block.signature or "", extra=extra)
    if isinstance(block, _Redacted):
        return m.Reasoning("", redacted=block.data, extra=extra)
    return _result_part(block)


def _result_part(block: _Text | _Image) -> Text | m.Image:
    extra = one_extra(_CACHE, block.cache_control)
    if isinstance(block, _Text):
        return Text(block.text, extra)
    return m.Image(m.MediaSource(block.source.media_type, data=block.source.data), extra)


def _result(block: _Result, extra: m.ExtraFields) -> m.ToolResult:
    content = block.content
    parts: tuple[m.ResultPart, ...] = ()
    if isinstance(content, str):
        parts = (Text(content),) if content else ()
    elif content is not None:
        parts = tuple(_result_part(part) for part in content if not _is_empty(part))
    return m.ToolResult(block.tool_use_id, parts, block.is_error or False, extra)


def tool_of(tool: _Tool) -> Tool:
    """Returns the tool."""
    values = _of_tool(tool)
    extra: m.ExtraFields = {} if values == _NONE_OF_TOOL else extra_of(_OF_TOOL, values)
    strict = bool_of(extra["strict"]) if "strict" in extra else False
    return Tool(tool.name, tool.description or "", schema_of(tool.input_schema), extra, strict=strict)


def system_of(system: str | list[_Text] | None) -> tuple[Part, ...]:
    """Returns the parts of the system prompt."""
    if isinstance(system, list):
        return tuple(_result_part(block) for block in system if not _is_empty(block))
    return (Text(system),) if system else ()
