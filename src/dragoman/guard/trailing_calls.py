"""Checks calls that were read from plain JSON at the end of a response, in a code fence or without one.

Such JSON can also quote what the user or a tool wrote. So it is left as text if its arguments do not match the schema
of the tool, or if the conversation contains it word for word.
"""

from dragoman.core.events import AnyEvent, Notice, TextDelta
from dragoman.core.messages import Document, Message, Request, Text, ToolResult
from dragoman.guard.injection.copied_call import CopiedCallDetector
from dragoman.parsing.untagged.trailing_json import CODES, call_left_warning


class TrailingCallCheck:
    """Checks the calls of one response that its reader took from plain JSON."""

    def __init__(self, request: Request, taint: CopiedCallDetector) -> None:
        self._request, self._copies = request, taint
        self._raw = ""
        self.drops_calls = False
        """Whether the JSON was emitted as text, so that the calls in it are dropped."""

    def observe(self, warning: Notice) -> None:
        """Notes whether the calls that follow are from plain JSON."""
        if warning.code in CODES:
            self._raw = warning.raw

    def reject(self, name: str, arguments: str, valid: bool | None, why: str) -> list[AnyEvent]:
        """Returns the JSON as text with a warning if its first call is rejected; empty if the call is accepted.

        Args:
            name: The name of the tool.
            arguments: The arguments, as JSON.
            valid: Whether they match the schema; None: not checked.
            why: What is wrong with them.
        """
        raw, self._raw = self._raw, ""
        if not raw:
            return []
        if valid is False:
            reason = f"its arguments do not fit the schema: {why}"
        elif where := self._copies.find(name, arguments) or self._find_in_request(arguments):
            reason = f"it stands in {where}"
        else:
            return []
        self.drops_calls = True
        return [call_left_warning(raw.lstrip()[0], reason, name, raw), TextDelta(raw)]

    def _find_in_request(self, arguments: str) -> str:
        """Where the text of the request contains these arguments; "" if it does not."""
        compact = "".join(arguments.split())
        if len(compact) <= len("{}"):
            return ""
        is_quoted = any(
            compact in "".join(text.split()) for message in self._request.messages for text in _texts(message)
        )
        return "the request's own text" if is_quoted else ""


def _texts(message: Message) -> list[str]:
    """The texts of a message that the model did not write."""
    parts = message.parts if message.role != "assistant" else ()
    inner = [part for outer in parts if isinstance(outer, ToolResult) for part in outer.parts]
    texts = [part.text for part in (*parts, *inner) if isinstance(part, Text)]
    return [*texts, *(part.source.text for part in (*parts, *inner) if isinstance(part, Document))]
