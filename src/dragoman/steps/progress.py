"""What the model has done in the user's present turn: its calls, and which of them succeeded."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dragoman.core.messages import Audio, Document, Image, Message, Text, ToolCall, ToolResult
from dragoman.core.repeated_call import call_key, is_error, result_text

_NO_ERROR: Final = re.compile(
    r'\W{0,8}errors?["\']?\s{0,8}[:=]\s{0,8}(?:null|none|false|0\b|""|\[\s{0,8}\]|\{\s{0,8}\})', re.I
)
"""Matches the beginning of a result whose error field is empty."""
_CONTENT: Final = (Text, Image, Document, Audio)


class TurnProgress(NamedTuple):
    """The calls of a turn."""

    calls: Mapping[str, int]
    """Calls by tool, failed ones included."""
    done: Mapping[str, int]
    """Different calls by tool that succeeded."""
    failures: int = 0
    """Failed calls since the last one that succeeded."""

    @property
    def total(self) -> int:
        """Returns the number of all calls."""
        return sum(self.calls.values())


def progress_of(messages: Sequence[Message]) -> TurnProgress:
    """Returns the calls since the user's last message; a text next to tool results does not begin a turn."""
    calls: list[ToolCall] = []
    results: dict[str, bool] = {}
    failures, has_success = 0, False
    for message in reversed(messages):
        if _begins_turn(message):
            break
        for part in reversed(message.parts):
            if isinstance(part, ToolCall):
                calls.append(part)
            elif isinstance(part, ToolResult) and part.call_id not in results:
                results[part.call_id] = succeeded(part)
                has_success = has_success or results[part.call_id]
                failures += not has_success
    keys = {call_key(call.name, call.arguments) for call in calls if results.get(call.id)}
    return TurnProgress(Counter(call.name for call in calls), Counter(name for name, _ in keys), failures)


def succeeded(result: ToolResult) -> bool:
    """Returns whether a result is not an error, by its flag or, for APIs without one, by how its text begins."""
    if result.is_error:
        return False
    return not is_error(result) or _NO_ERROR.match(result_text(result)) is not None


def _begins_turn(message: Message) -> bool:
    if message.role != "user" or any(isinstance(part, ToolResult) for part in message.parts):
        return False
    return any(isinstance(part, _CONTENT) for part in message.parts)
