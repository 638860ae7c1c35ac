"""When two calls are the same: whatever the white space in their arguments and the order of the members."""

import json
from typing import TypeAlias

from dragoman.core.messages import JsonText, Request, Text, ToolCall

CallKey: TypeAlias = tuple[str, str]


def key(name: str, arguments: JsonText) -> CallKey:
    """Equal for calls that are the same; by the text where Python cannot read it."""
    try:
        return name, json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return name, arguments


def answered_calls(request: Request) -> list[ToolCall]:
    """The calls since the user's last words."""
    calls: list[ToolCall] = []
    for message in reversed(request.messages):
        if message.role == "user" and any(isinstance(p, Text) for p in message.parts):
            break
        calls += [p for p in message.parts if isinstance(p, ToolCall)]
    return calls
