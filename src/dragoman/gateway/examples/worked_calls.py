"""Finds the calls of a request that worked: valid for their tool, and followed by a result that is not an error."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

from dragoman.core.messages import JsonText, Message, Request, Tool, ToolCall, ToolResult
from dragoman.core.repeated_call import is_error
from dragoman.redaction.redact import Redactor, is_secret


def may_have_worked_calls(request: Request) -> bool:
    """Returns whether the last message has results of calls."""
    return bool(request.messages) and _has_result(request.messages[-1])


def latest_worked_calls(request: Request, max_chars: int, max_per_tool: int) -> Iterator[tuple[Tool, ToolCall]]:
    """Yields the calls of the last assistant message that worked, each with its tool.

    Args:
        request: The complete request; its last messages contain the results.
        max_chars: Maximum characters of the arguments; longer ones are not looked at.
        max_per_tool: How many calls of each tool are looked at, the first ones.
    """
    from dragoman.guard.verdict import judge_call  # needs an extra that not all users of the gateway have

    latest = [*takewhile(_has_result, reversed(request.messages))]
    worked = {part.call_id for message in latest for part in _results(message) if not is_error(part)}
    if not worked or len(latest) == len(request.messages):
        return
    offered = {tool.name: tool for tool in request.prompt_tools or request.tools if tool.kind == "function"}
    judged = Counter[str]()
    for part in request.messages[-1 - len(latest)].parts:
        if not (isinstance(part, ToolCall) and part.id in worked and len(part.arguments) <= max_chars):
            continue
        tool = offered.get(part.name)
        judged[part.name] += 1
        if (
            tool is not None
            and judged[part.name] <= max_per_tool
            and judge_call(tool, part.arguments, ()).valid is True
        ):
            yield tool, part


def _has_result(message: Message) -> bool:
    return any(isinstance(part, ToolResult) for part in message.parts)


def _results(message: Message) -> Iterator[ToolResult]:
    return (part for part in message.parts if isinstance(part, ToolResult))


def may_have_secret(arguments: JsonText, redactor: Redactor) -> bool:
    """Returns whether arguments contain a secret, or a value under a name such as `password` or `api_key`.

    Args:
        arguments: The arguments, one JSON object.
        redactor: Finds known secrets, and texts that look like one.
    """
    return redactor.redact_text(arguments) != arguments or any(map(is_secret, _names(json.loads(arguments))))


def _names(value: object) -> Iterator[str]:
    """Yields the names of all members."""
    if isinstance(value, dict):
        yield from value
    members: Sequence[object] = (
        [*value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for member in members:
        yield from _names(member)
