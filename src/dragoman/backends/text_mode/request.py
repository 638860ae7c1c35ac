"""Requests to models whose text is parsed here, and the readers of that text.

    parse     the request as it is: the server shows the model its tools
    prompt    plain turns: tools, past calls and results are written into them in the model's format

Such a response is always streamed, so that it can be stopped after its calls. A stop string at the server would not do
that: any string that ends calls, or begins a result, may occur in a call's arguments or in the reply's text. The same
holds for the client's stop strings, which are searched for here, after the reader.
"""

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.text_mode.content_fallback import fallback_warnings, with_text_fallbacks
from dragoman.backends.text_mode.leaked_calls import LeakDetector
from dragoman.backends.text_mode.quoted_text import QuotedText
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import Notice
from dragoman.core.identifiers import ToolNameMap, call_ids
from dragoman.core.messages import (
    Audio,
    Document,
    Image,
    Message,
    Part,
    Request,
    Text,
    Tool,
    ToolChoice,
    ToolResult,
    tools_before_conversation,
)
from dragoman.parsing.format import Format
from dragoman.parsing.reader_options import READER_REPAIRS, ReaderOptions
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.prompting.chat_renderer import render_chat

_SCHEMA_PROMPT: Final = (
    "When you answer without a tool call, the whole answer must be JSON of this JSON Schema, with no other text:"
)
_SCHEMA_FIELDS: Final = ("output_config", "output_format", "response_format", "text")
"""Fields in which the APIs have the schema of the reply, next to other settings."""
_MEDIA_NAMES: Final[dict[type, str]] = {Image: "images", Audio: "audio", Document: "files"}


def for_parse_mode(request: Request) -> Request:
    """Returns the request to a server whose text is parsed here."""
    tools = tools_before_conversation(request.tools)
    return replace(request, tools=tools, stop=(), stream=True, stream_usage=True)


def for_prompted_mode(request: Request, format: Format) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request to a server that does not support tools, with warnings about what is lost.

    Raises:
        RequestError: a part cannot be shown as text.
    """
    warnings = [*fallback_warnings(request)]
    request = with_text_fallbacks(request)
    schema = request.response_schema if callable_tools(request) else ""
    if schema:
        request = with_schema_prompt(request)
    messages = tuple(Message(turn.role, (Text(turn.text),)) for turn in render_chat(request, format))
    first = sum(
        message.role == "system" for message in messages[:1]
    )  # the system message contains the tools, for this response only
    plain = replace(
        for_parse_mode(request), messages=messages, instruction_count=first, tools=(), tool_choice=ToolChoice()
    )
    if schema:  # the server's own constraint would not allow calls
        extra = {name: raw for name, raw in request.extra.items() if name not in _SCHEMA_FIELDS}
        plain = replace(plain, response_schema="", extra=extra)
        warnings.append(unconstrained_reply_warning())
    parts = [part for message in request.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    for name in dict.fromkeys(_MEDIA_NAMES[type(part)] for part in parts if _is_media(part)):
        warnings.append(Notice("content_dropped", f"{name} are placeholders in prompt mode", detail=name))
    return plain, tuple(warnings)


def with_schema_prompt(request: Request) -> Request:
    """Returns the request with the reply's schema in its system prompt, for a model that may call tools too."""
    begins = sum(1 for _ in takewhile(lambda message: message.role == "system", request.messages))
    instruction = Message("system", (Text(f"{_SCHEMA_PROMPT}\n{request.response_schema}"),))
    return replace(request, messages=(*request.messages[:begins], instruction, *request.messages[begins:]))


def unconstrained_reply_warning() -> Notice:
    """Returns the warning that makes the gateway check the reply (`gateway.reply_schema_check`)."""
    return Notice(
        "constraint_not_applied",
        "decoding is not constrained to the schema, as the model may call a tool; the reply is validated at its end",
        detail="response_format",
    )


def _is_media(part: Part) -> bool:
    return isinstance(part, Image | Audio) or (isinstance(part, Document) and not part.source.text)


def callable_tools(request: Request) -> tuple[Tool, ...]:
    """Returns the tools that a call in the response may name."""
    if request.tool_choice.mode == "none":
        return ()
    return tuple(tool for tool in request.tools if tool.kind == "function")


def rename_tools(tools: tuple[Tool, ...], form: re.Pattern[str]) -> tuple[tuple[Tool, ...], Mapping[str, str]]:
    """Returns the tools with names of this pattern, as the server got them, and a map from these to the
    client's names.
    """
    names = ToolNameMap((tool.name for tool in tools), form)
    client_names = {name: names.back(name) for name in names.offered()}
    if names.is_identity:
        return tools, client_names
    return tuple(replace(tool, name=names.sent(tool.name)) for tool in tools), client_names


def text_reader(
    format: Format,
    request: Request,
    tools: tuple[Tool, ...],
    context: ExchangeContext,
    *,
    prompt_suffix: str = "",
    lenient: bool = True,
) -> ReplyReader:
    """Returns a reader for one run of the response's text.

    Args:
        format: The format that the model writes.
        request: The client's request; ids of its calls are not used again.
        tools: The tools that may be called.
        context: The exchange that the response is part of.
        prompt_suffix: What the prompt has opened, such as `<think>`.
        lenient: Whether calls without the format's tags are accepted too.
    """
    options = ReaderOptions(
        prompt_suffix=prompt_suffix,
        lenient=lenient and bool(tools),
        used_ids=call_ids(request),
        enabled_repairs=READER_REPAIRS.difference(context.disabled_repairs),
    )
    if tools and context.unavailable_tools:
        offered = {tool.name for tool in tools}
        tools = (*tools, *(Tool(name) for name in context.unavailable_tools if name not in offered))
    return ReplyReader(format, tools, new_id=context.new_id, options=options)


def leak_detector(request: Request, new: Callable[[Format], ReplyReader]) -> Callable[[bool, bool], LeakDetector]:
    """Returns a function that makes a detector for calls left in a run of text. Its arguments: whether the response
    begins there, and whether every candidate waits for the end.
    """
    quotes, is_json, calls = QuotedText(request), bool(request.response_schema), bool(callable_tools(request))

    def new_detector(begins: bool, waits: bool) -> LeakDetector:
        return LeakDetector(
            lambda name: new(formats.get(name)), quotes, begins=begins, waits=waits, calls=calls, is_json=is_json
        )

    return new_detector
