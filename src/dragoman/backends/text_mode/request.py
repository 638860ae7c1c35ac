"""Requests for models whose text is read here, and what reads it.

    parse     the request as it is: the server shows the model its tools
    inject    plain turns: tools, past calls and results stand in them as the model's format has them

Such an answer is streamed, so that it can be cut off behind its calls. A stop string at the server could not do that:
any that ends calls, or begins a result, may stand in a call's arguments or in the answer's own words. So may the
client's stop strings, which are looked for here, behind the reader.
"""

import re
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.text_mode.content_fallback import losses, readable
from dragoman.backends.text_mode.leaked_calls import Leaks, Quotes
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import Notice
from dragoman.core.identifiers import ToolNameMap
from dragoman.core.messages import (
    Audio,
    Document,
    Image,
    Message,
    Part,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import READER_REPAIRS, ReplyReader
from dragoman.prompting.chat_renderer import render_chat

_REPLY: Final = (
    "When you answer without a tool call, the whole answer must be JSON of this JSON Schema, with no other text:"
)
_SCHEMA_FIELDS: Final = ("output_config", "output_format", "response_format", "text")
"""Where the APIs have the schema of the reply, beside how else it is to be."""
_NAMES: Final[dict[type, str]] = {Image: "images", Audio: "audio", Document: "files"}


def parsed(request: Request) -> Request:
    """The request to a server whose text is read."""
    return replace(request, stop=(), stream=True, stream_usage=True)


def injected(request: Request, format: Format) -> tuple[Request, tuple[Notice, ...]]:
    """The request to a server that knows nothing of tools, and what is lost on it.

    Raises: RequestError: a part cannot be shown as text.
    """
    told = [*losses(request)]
    request = readable(request)
    schema = request.response_schema if offered(request) else ""
    if schema:
        request = told_schema(request)
    messages = tuple(Message(turn.role, (Text(turn.text),)) for turn in render_chat(request, format))
    first = sum(message.role == "system" for message in messages[:1])  # which holds the tools, so for this answer alone
    plain = replace(parsed(request), messages=messages, instructions=first, tools=(), tool_choice=ToolChoice())
    if schema:  # the server's own would let no call through
        extra = {name: raw for name, raw in request.extra.items() if name not in _SCHEMA_FIELDS}
        plain = replace(plain, response_schema="", extra=extra)
        told.append(unconstrained_reply())
    shown = [part for message in request.messages for part in message.parts]
    shown += [inner for part in shown if isinstance(part, ToolResult) for inner in part.parts]
    for name in dict.fromkeys(_NAMES[type(part)] for part in shown if _is_picture(part)):
        told.append(Notice("content_dropped", f"{name} are placeholders in prompt mode", detail=name))
    return plain, tuple(told)


def told_schema(request: Request) -> Request:
    """Returns the request with the reply's schema in its system prompt, for a model that may call tools too."""
    begins = sum(1 for _ in takewhile(lambda message: message.role == "system", request.messages))
    shown = Message("system", (Text(f"{_REPLY}\n{request.response_schema}"),))
    return replace(request, messages=(*request.messages[:begins], shown, *request.messages[begins:]))


def unconstrained_reply() -> Notice:
    """Returns the warning that makes the gateway check the reply (checked_reply.py)."""
    return Notice(
        "constraint_not_applied",
        "the reply is not held to its schema, as the model may call a tool instead; it is checked at its end",
        detail="response_format",
    )


def _is_picture(part: Part) -> bool:
    return isinstance(part, Image | Audio) or (isinstance(part, Document) and not part.source.text)


def offered(request: Request) -> tuple[Tool, ...]:
    """The tools that a call in the answer may name."""
    if request.tool_choice.mode == "none":
        return ()
    return tuple(tool for tool in request.tools if tool.kind == "function")


def spelled(tools: tuple[Tool, ...], form: re.Pattern[str]) -> tuple[tuple[Tool, ...], Mapping[str, str]]:
    """The tools by names of this form, as a server was told them, and the client's own by those."""
    names = ToolNameMap((tool.name for tool in tools), form)
    return tuple(replace(tool, name=names.sent(tool.name)) for tool in tools), {
        n: names.back(n) for n in names.offered()
    }


def reader(
    format: Format, request: Request, tools: tuple[Tool, ...], turn: ExchangeContext, prompt_tail: str = ""
) -> ReplyReader:
    """For one run of text of the answer, in which these tools may be called."""
    past = (part.id for message in request.messages for part in message.parts if isinstance(part, ToolCall))
    return ReplyReader(
        format,
        tools,
        new_id=turn.new_id,
        prompt_tail=prompt_tail,
        lenient=bool(tools),
        used_ids=past,
        enabled_repairs=READER_REPAIRS.difference(turn.leave),
    )


def leaks(request: Request, new: Callable[[Format], ReplyReader]) -> Callable[[bool, bool], Leaks]:
    """What looks for calls left in a run of text, told whether the answer begins there, and whether all are to wait."""
    quotes, is_json, calls = Quotes(request), bool(request.response_schema), bool(offered(request))

    def made(begins: bool, waits: bool) -> Leaks:
        return Leaks(
            lambda name: new(formats.get(name)), quotes, begins=begins, waits=waits, calls=calls, is_json=is_json
        )

    return made
