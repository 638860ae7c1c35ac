"""Renders a request as chat turns of text, for models and servers without native tool calling.

The tools and the tool policy are at the end of the system turn; past calls and results are rendered in the format's own
shape. So over a conversation the text grows only at its end and a prompt cache stays valid; only the model's reasoning
is removed, as soon as the user writes something new.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from dragoman.core.messages import (
    Message,
    Part,
    Reasoning,
    Request,
    Tool,
    ToolCall,
    ToolResult,
    part_text,
    tools_before_conversation,
)
from dragoman.parsing.format import Format
from dragoman.prompting.example_calls import EXAMPLES_HEAD, example_calls
from dragoman.text.control_tokens import CONTROL_TOKEN_START
from dragoman.text.escape import escape_markers, escape_markers_in_request, escape_markers_in_strings


class ChatTurn(NamedTuple):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


def render_chat(request: Request, format: Format) -> list[ChatTurn]:
    """Renders the conversation as turns; consecutive turns have different roles, and only the first can be a system
    turn.

    System messages at the beginning become one turn; a later one becomes a reminder in the user's turn. Parts that are
    not text leave a placeholder such as `[image]`. Reasoning is shown while the model works on the user's last message,
    and is omitted after the user's next message, as the models' own chat templates do.

    The format's markers are escaped in all text that the model did not write; control tokens also in the model's own
    text.
    """
    request = escape_markers_in_request(
        request, CONTROL_TOKEN_START, include_assistant=True, keep_verbatim=model_markup(format)
    )
    request = _with_format_ids(escape_markers_in_request(request, format.markers), format)
    last = max((i for i, m in enumerate(request.messages) if _is_new_user_message(m)), default=-1)
    names: dict[str, str] = {}
    turn_texts: list[tuple[Literal["system", "user", "assistant"], list[str]]] = []
    for i, message in enumerate(request.messages):
        names |= {p.id: p.name for p in message.parts if isinstance(p, ToolCall)}
        role, text = _to_turn(message, names, format, first=all(role == "system" for role, _ in turn_texts))
        if text and i > last and role == "assistant" and not message.verbatim_text:
            text = _wrapped_reasoning(message, format) + text
        if not text:
            continue
        if not turn_texts or turn_texts[-1][0] != role:
            turn_texts.append((role, []))
        turn_texts[-1][1].append(text)
    turns = [ChatTurn(role, _join_texts(texts, role, format)) for role, texts in turn_texts]
    listed = tools_before_conversation(request.tools)
    if tools := format.write_tools(listed, request.tool_choice):
        tools += _write_examples(listed, format)
        system_text = turns.pop(0).text + "\n\n" if turns and turns[0].role == "system" else ""
        turns.insert(0, ChatTurn("system", system_text + tools))
    return turns


def _join_texts(texts: list[str], role: str, format: Format) -> str:
    """Joins the texts of one turn; markers that span several lines are escaped, because several parts can form one."""
    text = "\n".join(texts)
    return text if role == "assistant" else escape_markers(text, tuple(mark for mark in format.markers if "\n" in mark))


def _to_turn(message: Message, names: dict[str, str], format: Format, *, first: bool) -> ChatTurn:
    groups = groupby(message.parts, key=lambda part: isinstance(part, ToolCall))
    blocks = [_write_calls(g, format) if calls else _write_texts(g, names, format) for calls, g in groups]
    text = "\n".join(filter(None, blocks))
    match message.role:
        case "system" | "developer":
            reminder = f"<system-reminder>\n{text}\n</system-reminder>" if text else ""
            return ChatTurn("system", text) if first else ChatTurn("user", reminder)
        case "assistant":
            return ChatTurn("assistant", message.verbatim_text or text)
        case _:
            return ChatTurn("user", text)


def _with_format_ids(request: Request, format: Format) -> Request:
    """The request with its calls and results under ids that the format accepts."""
    ids: dict[str, str] = {}
    count = 0
    messages = []
    for message in request.messages:
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                call = format.numbered(part, count)
                ids[part.id], part, count = call.id, call, count + 1
            elif isinstance(part, ToolResult):
                part = msgspec.structs.replace(part, call_id=ids.get(part.call_id, part.call_id))
            parts.append(part)
        messages.append(msgspec.structs.replace(message, parts=tuple(parts)))
    return msgspec.structs.replace(request, messages=tuple(messages))


def _is_new_user_message(message: Message) -> bool:
    """Whether the user writes something new."""
    return message.role == "user" and not all(isinstance(part, ToolResult) for part in message.parts)


def model_markup(format: Format) -> tuple[str, ...]:
    """Returns the markers with which the model itself writes calls and reasoning."""
    written = format.write_calls(ToolCall(f"call0000{i}", "n", '{"k": "v"}') for i in (1, 2)) + "".join(
        format.reasoning_wrapper
    )
    read = {*format.calls, *format.reasoning_tags, *format.reasoning_tags.values()}
    read |= {*format.markup.closers, *format.markup.section} if format.markup else set()
    return tuple(marker for marker in format.markers if marker in written or marker in read)


def reasoning_text(message: Message, format: Format) -> str:
    """Returns the reasoning of a message, with the format's markers escaped."""
    text = "\n".join(filter(None, (part.text for part in message.parts if isinstance(part, Reasoning))))
    return escape_markers(text, format.markers)


def _wrapped_reasoning(message: Message, format: Format) -> str:
    text = reasoning_text(message, format)
    before, after = format.reasoning_wrapper
    return f"{before}{text}{after}" if text and before else ""


def _write_calls(calls: Iterable[Part], format: Format) -> str:
    """Renders parallel calls as the model writes them."""
    tool_calls = (call for call in calls if isinstance(call, ToolCall))
    if format.arguments == "JSON":
        return format.write_calls(tool_calls)
    return format.write_calls(_escape_strings(call, format) for call in tool_calls)


def _write_examples(tools: Sequence[Tool], format: Format) -> str:
    calls = [_write_calls([call], format) for call in example_calls(tools)]
    return "\n".join([f"\n\n{EXAMPLES_HEAD}", *calls]) if calls else ""


def _escape_strings(call: ToolCall, format: Format) -> ToolCall:
    """The call with the format's markers escaped in its strings, for formats that write strings without quotes."""
    escaped = escape_markers_in_strings(call.arguments, format.markers)
    for bracket in ("", ">", "]"):  # brackets of the format that can follow a value or a name
        escaped = escape_markers_in_strings(escaped, CONTROL_TOKEN_START, bracket)
    return msgspec.structs.replace(call, arguments=escaped)


def _write_texts(parts: Iterable[Part], names: dict[str, str], format: Format) -> str:
    texts = (
        format.write_result(p, names.get(p.call_id, "")) if isinstance(p, ToolResult) else part_text(p) for p in parts
    )
    return "\n".join(filter(None, texts))
