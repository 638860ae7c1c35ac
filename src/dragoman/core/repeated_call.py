"""Finds repeated calls, and re-asks the model after one: shows the earlier result again and asks for something else.

    tool   (the earlier result again)
    user   You have made this call of get_weather already, with the same arguments; above is its result again. What is
           the weather?

           If the result above answers this, answer now in plain words. If not, call another tool (get_time).

The model stays free: it keeps its tools, and after an error result it is not asked to answer from that. The result has
the role of a tool, because its text is not the user's. Comparisons of calls ignore white space in arguments and the
order of members.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.core.messages import JsonText, Message, Part, Request, Text, ToolCall, ToolResult, known_tools

CallKey: TypeAlias = tuple[str, str]
MAX_SHOWN_CHARS: Final = 4000
"""Maximum characters of a result that is shown again; a longer one is in the prompt already."""
MAX_NAMES: Final = 12
"""Maximum tools named in the message."""
_ERROR: Final = re.compile(r"\W{0,8}(?:error|exception|failed|failure|traceback)\b", re.IGNORECASE)
"""Matches the beginning of error results, for APIs without an error flag."""


def call_key(name: str, arguments: JsonText) -> CallKey:
    """Returns a key that is equal for equal calls; arguments that are not valid JSON are compared as text."""
    try:
        return name, json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments


def answered_calls(request: Request) -> list[ToolCall]:
    """Returns the calls since the user's last text message."""
    calls: list[ToolCall] = []
    for message in reversed(request.messages):
        if message.role == "user" and any(isinstance(p, Text) for p in message.parts):
            break
        calls += [p for p in message.parts if isinstance(p, ToolCall)]
    return calls


def earlier_result(request: Request, call: ToolCall) -> ToolResult | None:
    """Returns the latest result of this call since the user's last message; None if there is none."""
    key = call_key(call.name, call.arguments)
    ids = {
        part.id
        for part in _turn_parts(request)
        if isinstance(part, ToolCall) and call_key(part.name, part.arguments) == key
    }
    return next((part for part in _turn_parts(request) if isinstance(part, ToolResult) and part.call_id in ids), None)


def is_error(result: ToolResult) -> bool:
    """Returns whether the call failed."""
    return result.is_error or bool(_ERROR.match(result_text(result)))


def result_text(result: ToolResult) -> str:
    """Returns the text of the result."""
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))


def is_short(result: ToolResult) -> bool:
    """Returns whether the result is short enough to be shown again."""
    return all(isinstance(part, Text) for part in result.parts) and len(result_text(result)) <= MAX_SHOWN_CHARS


def reask_request(request: Request, call: ToolCall | None) -> Request:
    """Returns the request that re-asks the model.

    Args:
        request: The request that led to the repeated call.
        call: The repeated call; None if the model wrote nothing after a tool's result.
    """
    result = earlier_result(request, call) if call else _last_result(request)
    note = Message("user", (Text(_note(request, call, failed=result is not None and is_error(result))),))
    result_messages = [Message("tool", (result,))] if call and result and is_short(result) else []
    return replace(request, messages=(*request.messages, *result_messages, note))


def _note(request: Request, call: ToolCall | None, *, failed: bool) -> str:
    what = "an error" if failed else "its result again"
    opening = (
        f"You have made this call of {call.name} already, with the same arguments; above is {what}. " if call else ""
    )
    corrected = "arguments that correct what the error names" if failed else "other arguments"
    same_call, other = f"Call {call.name} with {corrected}" if call else "", _other(request)
    match request.tool_choice.mode:
        case "named":
            return f"{opening}Call {request.tool_choice.name} with {corrected}."
        case "required":
            return f"{opening}{same_call}, or call {other}." if same_call else f"Call {other}."
        case _ if failed:
            return f"{opening}{same_call}, or call {other}." if same_call else f"Call {other}, with {corrected}."
        case _:
            question = _question(request)
            about = f"{question}\n\nIf the result above answers this" if question else "If the result above is enough"
            return f"{opening}{about}, answer now in plain words. If not, call {other}."


def _other(request: Request) -> str:
    """Returns text for "another tool", with the names of tools not called in this turn."""
    called_names = {part.name for part in _turn_parts(request) if isinstance(part, ToolCall)}
    names = [tool.name for tool in known_tools(request.tools) if tool.kind == "function"]
    names = [name for name in names if name not in called_names]
    return f"another tool ({', '.join(names[:MAX_NAMES])})" if names else "a tool with other arguments"


def _question(request: Request) -> str:
    question = next((m for m in reversed(request.messages) if _is_question(m)), None)
    return "\n".join(part.text for part in question.parts if isinstance(part, Text)) if question else ""


def _turn_parts(request: Request) -> Iterator[Part]:
    """Yields the parts after the user's last message, the latest first."""
    for message in reversed(request.messages):
        results = (part for part in reversed(message.parts) if isinstance(part, ToolResult))
        if _is_question(message):
            yield from results  # results of this turn, if they are in one message with the question
            return
        yield from reversed(message.parts)


def _last_result(request: Request) -> ToolResult | None:
    return next((part for part in _turn_parts(request) if isinstance(part, ToolResult)), None)


def _is_question(message: Message) -> bool:
    return message.role == "user" and any(isinstance(part, Text) for part in message.parts)
