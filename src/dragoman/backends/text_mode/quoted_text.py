"""The caller's text: a marker that the model repeats from it is a quotation, not the start of a tool call."""

from collections.abc import Iterable

from dragoman.core.messages import Document, Message, Part, Request, Text, ToolResult


def caller_text(request: Request) -> str:
    """Returns the text shown to the model that it did not write: system and user text, and tool results."""
    parts = (part for message in request.messages for part in _caller_parts(message))
    return "\n".join(parts)


def _caller_parts(message: Message) -> Iterable[str]:
    for part in message.parts if message.role != "assistant" else ():
        yield _text_of(part)
        yield from map(_text_of, part.parts if isinstance(part, ToolResult) else ())


def _text_of(part: Part) -> str:
    return part.text if isinstance(part, Text) else part.source.text if isinstance(part, Document) else ""


class QuotedText:
    """The caller's text, built only when it is needed."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._text: str | None = None
        self._squeezed = ""

    def contains(self, text: str, *, whatever_space: bool = False) -> bool:
        """Returns whether the caller's text contains this text."""
        if self._text is None:
            self._text = caller_text(self._request)
            self._squeezed = _without_space(self._text)
        return _without_space(text) in self._squeezed if whatever_space else text in self._text


def _without_space(text: str) -> str:
    return "".join(text.split())
