"""Calls in plain JSON at the end of a reply, in a code fence or bare: taken only where the model can have meant them.

Such JSON may also quote what the user or a tool wrote. So such a call stays text where its arguments do not fit the
schema of its tool, and where the conversation holds it word for word.
"""

from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import Document, Message, Request, Text, ToolResult
from dragoman.guard.injection.copied_call import Taint
from dragoman.parsing.trailing_json import CODES, left


class Fenced:
    """Judges the calls of one answer that its reader took from plain JSON."""

    def __init__(self, request: Request, taint: Taint) -> None:
        self._request, self._taint = request, taint
        self._raw = ""
        self.drops = False
        """The JSON went out as text, so the calls that their reader took are dropped."""

    def saw(self, warning: Notice) -> None:
        """Note that such calls follow."""
        if warning.code in CODES:
            self._raw = warning.raw

    def refused(self, name: str, arguments: str, valid: bool | None, why: str) -> list[AnyEvent]:
        """The JSON as text, where its first call is none; nothing where it is one, or is no such call."""
        raw, self._raw = self._raw, ""
        if not raw:
            return []
        if valid is False:
            told = f"its arguments do not fit the schema: {why}"
        elif where := self._taint.copied(name, arguments) or self._said(arguments):
            told = f"it stands in {where}"
        else:
            return []
        self.drops = True
        return [left(raw.lstrip()[0], told, name, raw), TextDelta(raw)]

    def _said(self, arguments: str) -> str:
        """Where the caller's text has these arguments; "" where it has not."""
        wanted = "".join(arguments.split())
        if len(wanted) <= len("{}"):
            return ""
        found = any(wanted in "".join(text.split()) for message in self._request.messages for text in _texts(message))
        return "the request's own text" if found else ""


def _texts(message: Message) -> list[str]:
    """The text of a message that the model did not write."""
    parts = message.parts if message.role != "assistant" else ()
    inner = [part for outer in parts if isinstance(outer, ToolResult) for part in outer.parts]
    texts = [part.text for part in (*parts, *inner) if isinstance(part, Text)]
    return [*texts, *(part.source.text for part in (*parts, *inner) if isinstance(part, Document))]
