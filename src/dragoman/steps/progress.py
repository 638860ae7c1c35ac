"""What the model has done in the user's present turn: its calls, and which of them succeeded."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from dragoman.core.messages import (
    Audio,
    Document,
    FoldedCalls,
    Image,
    Message,
    Request,
    Steps,
    Text,
    ToolCall,
    ToolResult,
)
from dragoman.core.repeated_call import CallKey, call_key, is_error, result_text
from dragoman.steps.validate import named_tools

_NO_ERROR: Final = re.compile(
    r'\W{0,8}errors?["\']?\s{0,8}[:=]\s{0,8}(?:null|none|false|0\b|""|\[\s{0,8}\]|\{\s{0,8}\})', re.I
)
"""Matches the beginning of a result whose error field is empty."""
_STATUS_ERROR: Final = re.compile(
    r"""\W{0,8}(?:(?:success|ok)["']?\s{0,8}[:=]\s{0,8}false\b|status["']?\s{0,8}[:=]\s{0,8}["']?(?:error|fail))""",
    re.I,
)
"""Matches the beginning of a result that says so in another field."""
_FAILED_THINGS: Final = re.compile(r"""\W{0,8}(?:failed|failure)(?!["']?\s{0,8}(?::|$|\n|to\b))""", re.I)
"""Matches the beginning of a result about something that failed, such as payments."""
_DIGEST_CHARS: Final = 16
_CONTENT: Final = (Image, Document, Audio)


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


def request_progress(request: Request) -> TurnProgress:
    """Returns the calls of a request's present turn, without searches for tools."""
    found = request_calls(request)
    return TurnProgress(found.calls, Counter(name for name, _ in found.done), found.failures)


def request_calls(request: Request) -> FoldedCalls:
    """Returns the calls of a request's present turn, without searches for tools, to be kept in a summary."""
    return _calls(request.messages, tool_searches(request), request.folded)


def tool_searches(request: Request) -> frozenset[str]:
    """Returns the names of tool searches, whose calls do no work, unless the steps name them."""
    tools = request.prompt_tools or request.tools
    searches = frozenset(tool.name for tool in tools if tool.loading == "search")
    return searches.difference(name for name, _ in named_tools(request.steps or Steps())) if searches else searches


def _calls(messages: Sequence[Message], ignored: Collection[str], folded: FoldedCalls | None) -> FoldedCalls:
    """Returns the calls since the user's last message; a text next to tool results does not begin a turn."""
    start = next((n for n in reversed(range(len(messages))) if _begins_turn(messages, n)), 0)
    calls, answers = _answered(messages[start:])
    answered = [(calls[n], is_success) for n, is_success in answers.items() if calls[n].name not in ignored]
    before = FoldedCalls() if folded is None or Text(folded.summary) not in messages[start].parts else folded
    failures = before.failures
    for _, is_success in answered:
        failures = 0 if is_success else failures + 1
    done = dict.fromkeys((*before.done, *(_key(call) for call, is_success in answered if is_success)))
    counts = Counter(before.calls)
    counts.update(call.name for call in calls if call.name not in ignored)
    return FoldedCalls("", counts, tuple(done), failures)


def _key(call: ToolCall) -> CallKey:
    name, arguments = call_key(call.name, call.arguments)
    return name, sha256(arguments.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def succeeded_names(messages: Sequence[Message]) -> set[str]:
    """Returns the tools that have succeeded in the whole conversation."""
    calls, answers = _answered(messages)
    return {calls[number].name for number, is_success in answers.items() if is_success}


def _answered(messages: Sequence[Message]) -> tuple[list[ToolCall], dict[int, bool]]:
    """Returns the calls, and by the number of a call whether it succeeded, in the order of the results.

    A result is that of the last call of its id that has none yet: some servers use the same ids in each response.
    """
    calls: list[ToolCall] = []
    waiting: dict[str, list[int]] = {}
    last: dict[str, int] = {}
    answers: dict[int, bool] = {}
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCall):
            waiting.setdefault(part.id, []).append(len(calls))
            calls.append(part)
        elif isinstance(part, ToolResult):
            if numbers := waiting.get(part.call_id):
                last[part.call_id] = numbers.pop()
            if (number := last.get(part.call_id)) is not None:
                answers[number] = succeeded(part)
    return calls, answers


def succeeded(result: ToolResult) -> bool:
    """Returns whether a result is not an error, by its flag or, for APIs without one, by how its text begins."""
    if result.is_error:
        return False
    text = result_text(result)
    if _STATUS_ERROR.match(text):
        return False
    return not is_error(result) or (_NO_ERROR.match(text) or _FAILED_THINGS.match(text)) is not None


def _begins_turn(messages: Sequence[Message], number: int) -> bool:
    """Returns whether a message is a question of the user; images after results belong to these."""
    message = messages[number]
    if message.role != "user" or any(isinstance(part, ToolResult) for part in message.parts):
        return False
    if any(isinstance(part, Text) for part in message.parts):
        return True
    follows = number > 0 and any(isinstance(part, ToolResult) for part in messages[number - 1].parts)
    return not follows and any(isinstance(part, _CONTENT) for part in message.parts)
