"""Detects calls of tools that were not offered, in text: `{"name": "greet", "arguments": {}}`.

The reader leaves such a call as text and warns (`unknown_tool`). A client would show it to its user, so the text is
buffered, and the model is re-asked for an answer in text or a call of a tool that was offered. JSON that is not a call
is released as soon as that is clear, because a model may answer with an object that has a name.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import ToolCall
from dragoman.guard import feedback
from dragoman.guard.injection.copied_call import CopiedCallDetector
from dragoman.guard.reask import RejectedCall

CODE: Final = "unknown_tool"
DECISION_CHARS: Final = 400
"""Characters after which it is clear whether the text is a call."""
_JSON: Final = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
_CALL: Final = re.compile(
    r'"(?:name|function|tool|tool_name)"\s*:\s*"([^"\\]*)"[^{}]{0,80}"(?:arguments|parameters|args|input)"\s*:'
)
_NAME_IN_WARNING: Final = re.compile(r"called (['\"])(.*?)\1, which")


def rejected_call(warning: Notice, offered: Iterable[str]) -> RejectedCall:
    """Returns the call that this warning is about, without its text, which follows."""
    match = _NAME_IN_WARNING.search(warning.message)
    name = match[2] if match else ""
    return RejectedCall("unoffered", feedback.unknown_tool(name, offered), ToolCall("", name, ""), (warning,), [])


def call_text(failed: RejectedCall) -> str:
    """Returns the text of the call so far."""
    return "".join(event.text for event in failed.leftover if isinstance(event, TextDelta))


def is_not_call(failed: RejectedCall, taint: CopiedCallDetector, *, ended: bool) -> bool:
    """Returns whether the text is not a call, or is a copy of a call in the conversation.

    Args:
        failed: The call with its text so far.
        taint: Finds copies in the conversation.
        ended: Whether the text is complete.
    """
    text = call_text(failed)
    if not _JSON.match(text):
        return ended and not text.strip()
    if not (match := _CALL.search(text[:DECISION_CHARS])):
        return ended or len(text) >= DECISION_CHARS
    return ended and bool(taint.find(match[1], _arguments(text)))


def _arguments(text: str) -> str:
    """The arguments of the call, as JSON; "{}" if they cannot be read."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        return json.dumps(value.get("arguments", value.get("parameters", {})))
    except (ValueError, RecursionError, AttributeError):
        return "{}"


def release(
    failed: list[RejectedCall], waiting_events: list[AnyEvent | RejectedCall], taint: CopiedCallDetector, *, ended: bool
) -> None:
    """Removes what turned out not to be a call from `failed`, and puts its text back in its place in `waiting_events`.

    Args:
        failed: The rejected calls of the response.
        waiting_events: The events that wait for them, in order; each rejected call holds its place.
        taint: Decides whether a call was copied from a document.
        ended: Whether the response has ended.
    """
    for each in [each for each in failed if each.kind == "unoffered"]:
        if is_not_call(each, taint, ended=ended):
            failed.remove(each)
            at = next(n for n, waiting in enumerate(waiting_events) if waiting is each)
            warnings = each.events if _CALL.search(call_text(each)) else ()
            waiting_events[at : at + 1] = [*warnings, *each.leftover]


def as_text(waiting_events: Iterable[AnyEvent | RejectedCall]) -> list[AnyEvent | RejectedCall]:
    """Returns the events that wait, with calls of tools that were not offered as their text.

    Args:
        waiting_events: The events, and the rejected calls.
    """
    out: list[AnyEvent | RejectedCall] = []
    for each in waiting_events:
        is_text = isinstance(each, RejectedCall) and each.kind == "unoffered"
        out += each.events if isinstance(each, RejectedCall) and is_text else [each]
    return out
