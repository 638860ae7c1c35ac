"""Fast path for requests of Responses in the form that most clients send.

The body is decoded into typed structs, in a fraction of the time that cursors take. `_decode_body` refuses unusual
fields and all invalid values; `request_reader` then reads the body from the beginning, to accept it or to report where
it is invalid. `_read_item` and `_read_tool` return None for items and tools of other forms: clients send many of them,
so cursors read these alone.
"""

from operator import attrgetter
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from dragoman.core import messages as m
from dragoman.core.identifiers import NAME_LIMIT_CHARS
from dragoman.core.messages import Message, Request, Text, Tool, ToolCall, ToolChoice
from dragoman.dialects.openai_responses.request_reader import (
    NAME,
    Turns,
    effort_of,
    message_of_item,
    read_any,
    require_unique_names,
    schema_of_format,
    text_format,
    tools_of,
)
from dragoman.text.json_cursor import MAX_ITEMS, MAX_TOOLS, NULL, Cursor
from dragoman.wire.request_bodies import (
    DECODE_ERRORS,
    Count,
    Name,
    UnusualError,
    extra_of,
    media_from_url,
    one_extra,
    read_typed_body,
    schema_of,
)

_Number02 = Annotated[float, Meta(ge=0, le=2)]


class _Input(Struct, tag_field="type", tag="input_text", forbid_unknown_fields=True, gc=False):
    text: str


class _Output(Struct, tag_field="type", tag="output_text", forbid_unknown_fields=True, gc=False):
    text: str
    annotations: Raw = NULL
    logprobs: Raw = NULL


class _Image(Struct, tag_field="type", tag="input_image", forbid_unknown_fields=True, gc=False):
    image_url: Name
    detail: Raw = NULL


_Block: TypeAlias = _Input | _Output | _Image
_Content: TypeAlias = str | list[_Block] | None


class _Item(Struct, forbid_unknown_fields=True, gc=False):
    """A message, a function call or its output; each has only some of these fields."""

    type: Literal["message", "function_call", "function_call_output"] | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: _Content = None
    output: _Content = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    namespace: None = None
    id: Raw = NULL
    status: Raw = NULL
    internal_chat_message_metadata_passthrough: Raw = NULL


class _Tool(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["function"]
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT_CHARS)]
    parameters: Raw = NULL
    description: str | None = None
    strict: bool | None = None


class _ResponsesBody(Struct, forbid_unknown_fields=True, gc=False):
    model: str
    input: str | Annotated[list[Raw], Meta(min_length=1, max_length=MAX_ITEMS)]
    instructions: str | None = None
    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | None = None
    parallel_tool_calls: bool | None = None
    temperature: _Number02 | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_output_tokens: Count | None = None
    stream: bool | None = None
    store: bool | None = None
    background: Literal[False] | None = None
    conversation: None = None
    prompt: None = None
    previous_response_id: None = None
    stream_options: Raw = NULL
    text: Raw = NULL
    # All fields from here on are forwarded.
    client_metadata: Raw = NULL
    include: Raw = NULL
    max_tool_calls: Raw = NULL
    metadata: Raw = NULL
    prompt_cache_key: Raw = NULL
    prompt_cache_retention: Raw = NULL
    reasoning: Raw = NULL
    safety_identifier: Raw = NULL
    service_tier: Raw = NULL
    top_logprobs: Raw = NULL
    truncation: Raw = NULL
    user: Raw = NULL


_FIELDS: Final = _ResponsesBody.__struct_fields__
_FORWARDED: Final = _FIELDS[_FIELDS.index("client_metadata") :]
_forwarded_of: Final = attrgetter(*_FORWARDED)
_NOTHING: Final = (NULL,) * len(_FORWARDED)
_OF_ITEM: Final = ("id", "status", "internal_chat_message_metadata_passthrough")
_of_item: Final = attrgetter(*_OF_ITEM)
_NONE_OF_ITEM: Final = (NULL,) * len(_OF_ITEM)
_decode_body: Final = Decoder(_ResponsesBody).decode
_decode_item: Final = Decoder(_Item).decode
_decode_tool: Final = Decoder(_Tool).decode


def _forwarded(body: _ResponsesBody, json: bytes) -> m.ExtraFields:
    """Returns the fields that are forwarded."""
    values = _forwarded_of(body)
    return {} if values == _NOTHING else extra_of(_FORWARDED, values, json)


def _read_item(raw: Raw) -> Message | None:
    """Returns an item as a message; None for unusual ones."""
    try:
        item = _decode_item(raw)
    except DECODE_ERRORS:
        return None
    values = _of_item(item)
    extra: m.ExtraFields = {} if values == _NONE_OF_ITEM else extra_of(_OF_ITEM, values, raw)
    kind = item.type or "message"
    if kind == "message":
        if item.role is None or not item.call_id is item.name is item.arguments is item.output is None:
            return None
        return Message(item.role, _parts_of(item.content), extra)
    if not item.call_id or not item.content is item.role is None:
        return None
    if kind == "function_call_output":
        if not item.name is item.arguments is None:
            return None
        return Message("tool", (m.ToolResult(item.call_id, _parts_of(item.output), extra=extra),))
    if not item.name or item.output is not None:
        return None
    return Message("assistant", (ToolCall(item.call_id, item.name, item.arguments or "{}", extra),))


def _parts_of(content: _Content) -> tuple[m.Text | m.Image, ...]:
    """Returns the parts of the content."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple(part for part in map(_part, content) if not isinstance(part, Text) or part.text or part.extra)


def _part(block: _Block) -> m.Text | m.Image:
    if isinstance(block, _Input):
        return Text(block.text)
    if isinstance(block, _Image):
        return m.Image(media_from_url(block.image_url), one_extra("detail", block.detail))
    if block.annotations is block.logprobs is NULL:
        return Text(block.text)
    return Text(block.text, extra_of(("annotations", "logprobs"), (block.annotations, block.logprobs)))


def _read_tool(raw: Raw) -> Tool | None:
    """Returns a function; None for other tools and unusual ones."""
    try:
        tool = _decode_tool(raw)
        parameters = schema_of(tool.parameters)
    except (*DECODE_ERRORS, UnusualError):
        return None
    extra = {} if tool.strict is None else {"strict": Raw(b"true" if tool.strict else b"false")}
    return Tool(tool.name, tool.description or "", parameters, extra, strict=tool.strict or False)


def read_request(body: bytes | str) -> Request:
    """Reads the body of a request.

    Raises:
        ClientError: The body is invalid; the message contains the problem and its position.
    """
    return read_typed(body) or read_any(body)


def read_typed(body: bytes | str) -> Request | None:
    """Returns the request, or None if the body is unusual or invalid."""
    return read_typed_body(body, _decode_body, _typed_request)


def _typed_request(body: _ResponsesBody, json: bytes) -> Request:
    tools = _typed_tools(body.tools) if body.tools else ()
    parallel = body.parallel_tool_calls is not False
    if body.tool_choice == "required" and not tools:
        raise UnusualError
    form, text_extra = text_format(None if body.text == NULL else Cursor(body.text, "$.text"))
    forwarded = _forwarded(body, json)
    reasoning = Cursor(forwarded["reasoning"], "$.reasoning") if "reasoning" in forwarded else None
    system = (Message("system", (Text(body.instructions),)),) if body.instructions else ()
    return Request(
        model=body.model,
        messages=system + _typed_conversation(body.input),
        tools=tools,
        tool_choice=ToolChoice(body.tool_choice or "auto" if tools else "auto", parallel_tool_calls=parallel),
        sampling=m.Sampling(body.temperature, body.top_p),
        max_tokens=body.max_output_tokens,
        response_schema=schema_of_format(form),
        response_name=form.string("name") if form else "",
        response_description=form.string("description") if form else "",
        response_strict=form.flag("strict") if form else False,
        stream=body.stream or False,
        stream_usage=True,
        reasoning_effort=effort_of(reasoning),
        instruction_count=len(system),
        store=body.store is not False,
        extra={**text_extra, **forwarded},
        dialect=NAME,
        accepts_parallel_calls=body.parallel_tool_calls or False,
    )


def _typed_conversation(input: str | list[Raw]) -> tuple[Message, ...]:
    if isinstance(input, str):
        return (Message("user", (Text(input),) if input else ()),)
    turns = Turns()
    for n, raw in enumerate(input):
        turns.add(_read_item(raw) or _untyped_item(Cursor(raw, f"$.input[{n}]")), new_turn=False)
    return turns.messages()


def _untyped_item(item: Cursor) -> Message:
    fields = item.fields()
    kind = fields.string("type") or "message"
    if kind == "additional_tools":
        raise UnusualError
    return message_of_item(item, kind, fields)


def _typed_tools(items: list[Raw]) -> tuple[Tool, ...]:
    tools: list[Tool] = []
    for n, raw in enumerate(items):
        tool = _read_tool(raw)
        tools += (tool,) if tool is not None else tools_of(Cursor(raw, f"$.tools[{n}]"))
    require_unique_names(tuple(tools))
    return tuple(tools)
