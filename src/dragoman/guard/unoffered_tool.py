"""Text in which a model calls a tool that is not offered: `{"name": "greet", "arguments": {}}`.

The reader leaves such a call as text and warns (`unknown_tool`). A client would show it to its user, so the text is
held, and the model is asked to answer in words or to call a tool that there is. JSON that is no call is released as
soon as that shows: a model may answer with an object that has a name.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import ToolCall
from dragoman.guard import feedback
from dragoman.guard.injection.copied_call import Taint
from dragoman.guard.reask import Failed

CODE: Final = "unknown_tool"
SHOWS_CHARS: Final = 400
"""Characters after which a call has shown that it is one."""
_JSON: Final = re.compile(r"\s*(?:```\w*\s*)?[{\[]")
_CALL: Final = re.compile(
    r'"(?:name|function|tool|tool_name)"\s*:\s*"([^"\\]*)"[^{}]{0,80}"(?:arguments|parameters|args|input)"\s*:'
)
_NAMED: Final = re.compile(r"called (['\"])(.*?)\1, which")


def held(warning: Notice, offered: Iterable[str]) -> Failed:
    """The call that this warning is about; its text follows."""
    found = _NAMED.search(warning.message)
    name = found[2] if found else ""
    return Failed("unoffered", feedback.unknown(name, offered), ToolCall("", name, ""), (warning,), [])


def said(failed: Failed) -> str:
    """The text of it, so far."""
    return "".join(event.text for event in failed.left if isinstance(event, TextDelta))


def is_none(failed: Failed, taint: Taint, *, ended: bool) -> bool:
    """Whether the text is no call after all, or a copy of one that the conversation holds."""
    text = said(failed)
    if not _JSON.match(text):
        return ended and not text.strip()
    if not (found := _CALL.search(text[:SHOWS_CHARS])):
        return ended or len(text) >= SHOWS_CHARS
    return ended and bool(taint.copied(found[1], _arguments(text)))


def _arguments(text: str) -> str:
    """The arguments of the call, as JSON; "{}" where they cannot be read."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
        return json.dumps(value.get("arguments", value.get("parameters", {})))
    except (ValueError, RecursionError, AttributeError):
        return "{}"


def release(failed: list[Failed], late: list[AnyEvent | Failed], taint: Taint, *, ended: bool) -> None:
    """Take what is no call after all from what `failed`; in what waits (`late`), its text stands in its place."""
    for each in [each for each in failed if each.fault == "unoffered"]:
        if is_none(each, taint, ended=ended):
            failed.remove(each)
            at = next(n for n, waiting in enumerate(late) if waiting is each)
            warnings = each.events if _CALL.search(said(each)) else ()
            late[at : at + 1] = [*warnings, *each.left]
