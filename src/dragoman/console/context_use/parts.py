"""The parts of a request in the order of the prompt: tools, then messages, then the schema of the response.

    for part in request_parts(request, vocabulary): part.kind, part.name, part.tokens

A template may write the tools after the system prompt; the order matters only for what a prompt cache holds.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from dragoman.console.context_use.views import PartKind
from dragoman.core.messages import (
    SYSTEM_ROLES,
    Audio,
    Document,
    Image,
    JsonText,
    Message,
    Part,
    Reasoning,
    Refusal,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    known_tools,
)
from dragoman.core.token_estimate import (
    MESSAGE_TOKENS,
    TOOLS_TOKENS,
    TokenEstimator,
    part_texts,
    tool_texts,
)

EXCERPT_CHARS: Final = 100
_ARGUMENT_CHARS: Final = 80
_ARGUMENTS_LIMIT_CHARS: Final = 1_000_000
"""Longer arguments are not read for a name."""
_NAMING_ARGUMENTS: Final = (
    *("file_path", "filePath", "path", "filename", "notebook_path", "command", "cmd", "url", "query", "pattern"),
    *("description", "prompt"),
)
"""Arguments that tell best what a call is about."""
_TAG: Final = re.compile(r"\s*<([A-Za-z][\w:-]{0,40})>")
_MEDIA: Final[Mapping[type[Image | Document | Audio], PartKind]] = {
    Image: "image",
    Document: "document",
    Audio: "audio",
}


class RequestPart(NamedTuple):
    """One part of a request."""

    kind: PartKind
    name: str
    text: str
    """Its first text, whole."""
    link: str
    message: int | None
    """Number of the message, from 0; None: it is not in a message."""
    tokens: int
    """Estimated."""
    chars: int
    mark: int
    """Hash of the content, which is the same for the same content in this process."""


def request_parts(request: Request, vocabulary: TokenEstimator) -> list[RequestPart]:
    """Returns all parts; their estimates add up to that of the request, except for rounding.

    Args:
        request: The request.
        vocabulary: Estimates the tokens.
    """
    parts = [_tool_part(tool, vocabulary.estimate_tool(tool)) for tool in known_tools(request.tools)]
    frame = (TOOLS_TOKENS if parts else 0) + MESSAGE_TOKENS * len(request.messages)
    if frame:
        parts.append(RequestPart("frame", "roles and markers", "", "", None, frame, 0, 0))
    namer = _Namer()
    for number, message in enumerate(request.messages):
        for part in message.parts:
            parts += _message_parts(message, number, part, namer, vocabulary)
        namer.end(message)
    if request.response_schema:
        tokens = vocabulary.estimate(request.response_schema)
        parts.append(_part("schema", "schema of the response", (request.response_schema,), tokens))
    return parts


def _tool_part(tool: Tool, tokens: int) -> RequestPart:
    name, *texts = tool_texts(tool)
    return _part("tool", f"tool {name}", tuple(texts), tokens, link=f"tool:{name}")


def _part(
    kind: PartKind, name: str, texts: tuple[str, ...], tokens: int, *, link: str = "", message: int | None = None
) -> RequestPart:
    text = next(filter(None, texts), "")
    return RequestPart(kind, name, text, link, message, tokens, sum(map(len, texts)), hash((kind, name, texts)))


def _media_part(part: Image | Document | Audio, place: str, tokens: int, *, link: str, message: int) -> RequestPart:
    source = part.source
    kind, content = _MEDIA[type(part)], (source.data, source.url, source.file_id, source.text)
    made = _part(kind, f"{kind} in {place}", tuple(part_texts(part)), tokens, link=link, message=message)
    return made._replace(mark=hash((kind, content)))


class _Namer:
    """Names parts by what precedes them."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        """What each call does, by its id."""
        self._counts = {"system": 0, "user": 0, "assistant": 0}

    def end(self, message: Message) -> None:
        """The message is over."""
        role = _role(message)
        if role in self._counts and not all(isinstance(part, ToolResult) for part in message.parts):
            self._counts[role] += 1

    def text(self, message: Message, text: str) -> str:
        """Returns the name of a text."""
        role = _role(message)
        number = self._counts.get(role, 0) + 1
        if role == "system":
            name = "system prompt" if number == 1 else f"system prompt {number}"
        else:
            name = f"{'answer' if role == 'assistant' else 'user message'} {number}"
        tag = _TAG.match(text)
        return f"{name}, <{tag[1]}>" if tag else name

    def call(self, call: ToolCall) -> str:
        """Returns the name of a call."""
        argument = telling_argument(call.arguments)
        name = f"{call.name} {argument}".rstrip()
        self._calls[call.id] = name
        return f"call of {name}".rstrip()

    def result(self, result: ToolResult) -> str:
        """Returns the name of a result."""
        return f"result of {self._calls.get(result.call_id) or 'a call'}"


def _role(message: Message) -> str:
    return "system" if message.role in SYSTEM_ROLES else message.role


def _message_parts(
    message: Message, number: int, part: Part, namer: _Namer, vocabulary: TokenEstimator
) -> Iterator[RequestPart]:
    link = f"message:{number}"
    if isinstance(part, ToolResult):
        yield from _result_parts(part, number, link, namer, vocabulary)
        return
    if isinstance(part, Image | Document | Audio):
        place, tokens = namer.text(message, ""), vocabulary.estimate_part(part)
        yield _media_part(part, place, tokens, link=link, message=number)
        return
    kind: PartKind
    match part:
        case Text(text) | Refusal(text):
            role = _role(message)
            kind = "system" if role == "system" else "assistant" if role == "assistant" else "user"
            name = namer.text(message, text)
        case Reasoning():
            kind, name = "reasoning", f"reasoning of {namer.text(message, '')}"
        case ToolCall():
            kind, name = "call", namer.call(part)
        case _:
            kind, name = "other", f"part of {namer.text(message, '')}"
    texts = (part.arguments,) if isinstance(part, ToolCall) else tuple(part_texts(part))
    yield _part(kind, name, texts, vocabulary.estimate_part(part), link=link, message=number)


def _result_parts(
    result: ToolResult, number: int, link: str, namer: _Namer, vocabulary: TokenEstimator
) -> Iterator[RequestPart]:
    """Yields the text of a result as one part, and each image, document and recording in it as another."""
    name = namer.result(result)
    own = tuple(part for part in result.parts if not isinstance(part, Image | Document | Audio))
    texts = tuple(text for part in own for text in part_texts(part))
    tokens = vocabulary.estimate_part(msgspec.structs.replace(result, parts=own))
    yield _part("result", name, texts, tokens, link=link, message=number)
    for part in result.parts:
        if isinstance(part, Image | Document | Audio):
            yield _media_part(part, name, vocabulary.estimate_part(part), link=link, message=number)


def excerpt(text: str) -> str:
    """Returns the beginning of a text in one line."""
    line = " ".join(text[: 4 * EXCERPT_CHARS].split())
    return line if len(line) <= EXCERPT_CHARS else line[: EXCERPT_CHARS - 1] + "…"


def telling_argument(arguments: JsonText) -> str:
    """Returns the argument that tells best what a call is about, in one line; "": none is a text."""
    if len(arguments) > _ARGUMENTS_LIMIT_CHARS:
        return ""
    try:
        fields = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ""
    names = [name for name in _NAMING_ARGUMENTS if name in fields] or list(fields)[:4]
    for name in names:
        if text := _plain(fields[name]):
            line = " ".join(text[: 4 * _ARGUMENT_CHARS].split())
            return line if len(line) <= _ARGUMENT_CHARS else line[: _ARGUMENT_CHARS - 1] + "…"
    return ""


def _plain(raw: msgspec.Raw) -> str:
    """Returns a string, or strings with blanks between them, as of a command; "": it is another value."""
    try:
        value = msgspec.json.decode(raw, type=str | list[str])
    except (msgspec.DecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else " ".join(value)
