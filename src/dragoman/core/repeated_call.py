"""A call that the model has made before: its earlier result, and the turns with which the model is re-asked.

    tool   (the earlier result, once more)
    user   You have made this call of get_weather already, with the same arguments; above is its result again. What is
           the weather?

           If the result above answers this, answer now in plain words. If not, call another tool (get_time).

The model stays free: it keeps its tools, and where the result is an error, it is not told to answer from that. The
result has the role of a tool, as its text is not the user's.
"""

import re
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from dragoman.core.call_identity import key
from dragoman.core.messages import Message, Part, Request, Text, ToolCall, ToolResult

SHOWN_CHARS: Final = 4000
"""A longer result is not shown twice: it is in the prompt."""
NAMES: Final = 12
"""Of tools that are named."""
_ERROR: Final = re.compile(r"\W{0,8}(?:error|exception|failed|failure|traceback)\b", re.IGNORECASE)
"""How a result that is an error begins, in APIs that have no field for that."""


def result_of(request: Request, call: ToolCall) -> ToolResult | None:
    """The latest result of this call since the user's last message; None where it has none."""
    made = key(call.name, call.arguments)
    ids = {part.id for part in _turn(request) if isinstance(part, ToolCall) and key(part.name, part.arguments) == made}
    return next((part for part in _turn(request) if isinstance(part, ToolResult) and part.call_id in ids), None)


def is_error(result: ToolResult) -> bool:
    """Whether the call failed."""
    return result.is_error or bool(_ERROR.match(text_of(result)))


def text_of(result: ToolResult) -> str:
    """The text of the result."""
    return "\n".join(part.text for part in result.parts if isinstance(part, Text))


def is_short(result: ToolResult) -> bool:
    """Whether it can be shown twice."""
    return all(isinstance(part, Text) for part in result.parts) and len(text_of(result)) <= SHOWN_CHARS


def re_asked(request: Request, call: ToolCall | None) -> Request:
    """The request that re-asks a model which made this call again; None: which wrote nothing after a tool's result."""
    found = result_of(request, call) if call else _last_result(request)
    note = Message("user", (Text(_note(request, call, failed=found is not None and is_error(found))),))
    again = [Message("tool", (found,))] if call and found and is_short(found) else []
    return replace(request, messages=(*request.messages, *again, note))


def _note(request: Request, call: ToolCall | None, *, failed: bool) -> str:
    what = "an error" if failed else "its result again"
    begun = (
        f"You have made this call of {call.name} already, with the same arguments; above is {what}. " if call else ""
    )
    mended = "arguments that mend what the error names" if failed else "other arguments"
    same, other = f"Call {call.name} with {mended}" if call else "", _other(request)
    match request.tool_choice.mode:
        case "named":
            return f"{begun}Call {request.tool_choice.name} with {mended}."
        case "required":
            return f"{begun}{same}, or call {other}." if same else f"Call {other}."
        case _ if failed:
            return f"{begun}{same}, or call {other}." if same else f"Call {other}, with {mended}."
        case _:
            question = _question(request)
            about = f"{question}\n\nIf the result above answers this" if question else "If the result above is enough"
            return f"{begun}{about}, answer now in plain words. If not, call {other}."


def _other(request: Request) -> str:
    """Another tool, with the names of those that have not been called in this turn."""
    called = {part.name for part in _turn(request) if isinstance(part, ToolCall)}
    names = [tool.name for tool in request.tools if tool.kind == "function" and tool.name not in called]
    return f"another tool ({', '.join(names[:NAMES])})" if names else "a tool with other arguments"


def _question(request: Request) -> str:
    asked = next((m for m in reversed(request.messages) if _is_question(m)), None)
    return "\n".join(part.text for part in asked.parts if isinstance(part, Text)) if asked else ""


def _turn(request: Request) -> Iterator[Part]:
    """What follows the user's last message, the latest first."""
    for message in reversed(request.messages):
        results = (part for part in reversed(message.parts) if isinstance(part, ToolResult))
        if _is_question(message):
            yield from results  # of this turn, where they are in one message with the question
            return
        yield from reversed(message.parts)


def _last_result(request: Request) -> ToolResult | None:
    return next((part for part in _turn(request) if isinstance(part, ToolResult)), None)


def _is_question(message: Message) -> bool:
    return message.role == "user" and any(isinstance(part, Text) for part in message.parts)
