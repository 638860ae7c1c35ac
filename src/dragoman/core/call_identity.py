"""Comparison of calls: white space in arguments and the order of members are ignored."""

import json
from typing import TypeAlias

from dragoman.core.messages import JsonText, Request, Text, ToolCall

CallKey: TypeAlias = tuple[str, str]


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
