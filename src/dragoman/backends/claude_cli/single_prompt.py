"""A request as a single user message, for versions of the CLI that accept no past turns.

    What does a.txt say?
    <previous_response>
    <tool_call>
    {"name": "Read", "arguments": {"path": "a.txt"}}
    </tool_call>
    </previous_response>
    <tool_result id="call_1" name="Read">
    pomegranate
    </tool_result>

The tools and the call format follow the client's system prompt, as in prompt mode for models without tool support
(Hermes). A single user turn stays unchanged. Of several turns each is a block, appended to the earlier ones, so that
the message only grows during a conversation and the prompt cache stays valid; images and files are blocks at their
place. Text that looks like these tags is escaped. The model's past reasoning is left out: it would later disappear
from the middle of the message.

Source of the tags: those of claude-max-api-proxy, November 2026; formats/hermes.py.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace as remade
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from dragoman import formats
from dragoman.backends.claude_cli.command import ModelSpec
from dragoman.backends.claude_cli.conversation import Conversation, map_conversation
from dragoman.backends.claude_cli.prompt_escape import append_command_guard, indent_slash_command
from dragoman.backends.claude_cli.tool_choice_prompt import ReplyRequirement, reply_requirement
from dragoman.backends.claude_cli.versions import NATIVE_SINCE, Version
from dragoman.backends.text_mode import request as text_mode_request
from dragoman.backends.text_mode.content_fallback import with_text_fallbacks
from dragoman.backends.text_mode.response import TextModeReader
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import Notice
from dragoman.core.messages import (
    SYSTEM_ROLES,
    Document,
    Message,
    Part,
    Reasoning,
    Request,
    ResultPart,
    Text,
    Tool,
    ToolChoice,
    ToolResult,
    UnknownPart,
)
from dragoman.parsing.define_format import EXAMPLE, tools_writer
from dragoman.parsing.format import Format
from dragoman.parsing.reply_reader import ReplyReader
from dragoman.parsing.tool_markup import RESULT, TOOLS
from dragoman.prompting.chat_renderer import ChatTurn, render_chat
from dragoman.text.escape import escape_markers_in_request, escape_markers_json
from dragoman.wire.history import append_continue_prompt, hoist_system_messages, repair_history
from dragoman.wire.translation import client_run_tools

_OPEN: Final = "<previous_response>"
_CLOSE: Final = "</previous_response>"
_NOTE: Final = (
    f"(What you answered so far stands between {_OPEN} and {_CLOSE}; the user's words and the results of your requests "
    "stand around it. Give your next answer alone, without those tags.)"
)
_MARK: Final = "\ufdd0"
"""Placeholder, with a number, of an image or a file until its block is made. A noncharacter: no text has it."""
_MARKS: Final = re.compile(rf"\n?{_MARK}(\d+){_MARK}\n?")
_MARKERS: Final = ("<previous_response", "</previous_response", _MARK)
_SCHEMA: Final = (
    "Where you request no tool, answer with JSON of this JSON Schema, without a word or a fence around it:\n"
)


def _format() -> Format:
    """Returns Hermes, with results that name their call and whether it failed."""
    hermes = formats.get("hermes")
    example = hermes.write_call(EXAMPLE)
    return remade(
        hermes,
        write_tools=tools_writer(example, hermes.markers, TOOLS, RESULT),
        write_result=lambda result, name: RESULT.write(result, name, hermes.markers),
    )


FORMAT: Final = _format()
"""The format of calls and results."""


class SinglePrompt(NamedTuple):
    """A request as a single user message."""

    request: Request
    """The system prompt and one user message."""
    warnings: tuple[Notice, ...] = ()


def to_single_prompt(request: Request) -> SinglePrompt:
    """Returns the request as a single user message.

    Raises:
        RequestError: a part cannot be shown as text.
        UnsupportedError: the request requires a tool that its vendor runs.
    """
    client_run_tools(request, "claude")
    messages, warnings = repair_history(request.messages)
    messages = hoist_system_messages(messages)
    begins = sum(message.role == "system" for message in messages[:1])
    system, later = messages[:begins], messages[begins:]
    if not _is_plain(request, later):
        system, later = _flatten(replace(request, messages=messages))
    hosted = tuple(tool for tool in request.tools if tool.kind != "function")
    plain = replace(request, tools=hosted, tool_choice=ToolChoice(), instruction_count=len(system))
    if request.response_schema and text_mode_request.callable_tools(request):  # it would prevent calls
        schema = escape_markers_json(escape_markers_json(request.response_schema, FORMAT.markers), _MARKERS)
        system = (*system, Message("system", (Text(_SCHEMA + schema),)))
        plain = replace(plain, response_schema="")
        warnings = (*warnings, text_mode_request.unconstrained_reply_warning())
    return SinglePrompt(replace(plain, messages=(*system, *later)), warnings)


def _is_plain(request: Request, messages: Sequence[Message]) -> bool:
    """Whether there is a single user message, and no tools."""
    is_single_message = (
        len(messages) == 1 and messages[0].role == "user" and not text_mode_request.callable_tools(request)
    )
    return is_single_message and not any(isinstance(part, ToolResult) for part in messages[0].parts)


def _flatten(request: Request) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Returns the system messages and the user message."""
    escaped = escape_markers_in_request(
        with_text_fallbacks(_without_reasoning(request)), _MARKERS, include_assistant=True
    )
    media: list[Part] = []
    messages = tuple(_extract_media(message, media) for message in append_continue_prompt(escaped.messages))
    turns = render_chat(replace(escaped, messages=messages), FORMAT)
    system = tuple(Message("system", (Text(turn.text),)) for turn in turns[:1] if turn.role == "system")
    return system, (Message("user", tuple(_parts(turns[len(system) :], media))),)


def _without_reasoning(request: Request) -> Request:
    def without(message: Message) -> Message:
        return replace(message, parts=tuple(part for part in message.parts if not isinstance(part, Reasoning)))

    return replace(request, messages=tuple(map(without, request.messages)))


def _extract_media(message: Message, media: list[Part]) -> Message:
    """Returns the message with placeholders for images and files, which are appended to `media`."""
    if message.role in SYSTEM_ROLES:
        return message

    def marked(part: Part) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(map(extract, part.parts)))
        return extract(part) if isinstance(part, ResultPart) else part

    def extract(part: ResultPart) -> ResultPart:
        if isinstance(part, Text | UnknownPart) or (isinstance(part, Document) and part.source.text):
            return part
        media.append(part)
        return Text(f"{_MARK}{len(media) - 1}{_MARK}")

    return replace(message, parts=tuple(map(marked, message.parts)))


def _parts(turns: Sequence[ChatTurn], media: Sequence[Part]) -> Iterator[Part]:
    """Yields the parts of the turns, in order."""
    noted = False
    for turn in turns:
        text = turn.text
        if turn.role == "assistant":
            text = f"{'' if noted else _NOTE + chr(10)}{_OPEN}\n{text}\n{_CLOSE}"
            noted = True
        texts = _MARKS.split(text)
        for at, each in enumerate(texts):
            if at % 2:
                yield media[int(each)]
            elif each.strip():
                yield Text(each)


def to_conversation(request: Request, spec: ModelSpec, version: Version) -> Conversation:
    """Returns the conversation with a single user message, for this version.

    Raises: see `to_single_prompt`; UnsupportedError: a part of the request cannot be sent to the model.
    """
    prompt, warnings = to_single_prompt(request)
    old = version < NATIVE_SINCE
    conversation = map_conversation(prompt, spec, indent_slash_command if old else append_command_guard)
    requirement = reply_requirement(
        request.tool_choice, tools=bool(_callable_tools(request)), schema=bool(conversation.schema)
    )
    conversation = conversation._replace(
        spec=conversation.spec._replace(may_reask=requirement != ReplyRequirement()), requirement=requirement
    )
    return conversation._replace(
        warnings=(*warnings, *conversation.warnings), is_single_prompt=True, needs_start_settings=old
    )


def _callable_tools(request: Request) -> tuple[Tool, ...]:
    """Returns the tools that the model may call."""
    choice = request.tool_choice
    return tuple(
        tool for tool in text_mode_request.callable_tools(request) if choice.mode != "named" or tool.name == choice.name
    )


def parse_text_reply(request: Request, context: ExchangeContext) -> TextModeReader:
    """Returns the reader for the calls in the response text."""
    tools = _callable_tools(request)
    leaks = (
        text_mode_request.leak_detector(
            request, partial(text_mode_request.text_reader, request=request, tools=tools, context=context)
        )
        if tools
        else None
    )

    def reader(begins: bool) -> ReplyReader:  # not lenient: code blocks are examples
        return text_mode_request.text_reader(FORMAT, request, tools, context, lenient=False)

    return TextModeReader(
        reader, leaks, context.new_id, {}, lambda: None, parallel=request.tool_choice.parallel_tool_calls
    )
