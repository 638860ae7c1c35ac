"""Parts of a message that only one API knows, turned into ones that can be shown as text."""

from typing import Final

import msgspec

from dragoman.core.errors import RequestError, UnsupportedError, nearest, quote
from dragoman.core.values import Message, Opaque, Part, Request, ResultPart, Role, Text, ToolResult

_TAKEN: Final = ("text", "refusal", "image", "image_url", "input_audio", "document", "file", "search_result")
_PLACEHOLDERS: Final = ("image", "document")
"""Known, with a source that is not: shown by name as their like are."""


def readable(request: Request) -> Request:
    """The request without parts that would be lost on a model that only reads text.

    What nobody here knows in a result is shown as its JSON. In an assistant's turn it was written by a vendor's
    model, not by the client: it stays, to be shown by its name.

    Raises: RequestError: a part is of an unknown type, or not as its type has it. UnsupportedError: the tool that must
        be called is one that its vendor runs.
    """
    choice = request.tool_choice
    if choice.mode == "named" and all(tool.kind != "function" or tool.name != choice.name for tool in request.tools):
        raise UnsupportedError(f"no model here can call {quote(choice.name)}, which its vendor runs", "$.tool_choice")
    return msgspec.structs.replace(request, messages=tuple(map(_message, request.messages)))


def _message(message: Message) -> Message:
    if not any(isinstance(p, Opaque | ToolResult) for p in message.parts):
        return message
    return msgspec.structs.replace(message, parts=tuple(_part(p, message.role) for p in message.parts))


def _part(part: Part, role: Role) -> Part:
    match part:
        case Opaque() if role != "assistant":
            return _known(part)
        case ToolResult(parts=parts):
            return msgspec.structs.replace(part, parts=tuple(map(_shown, parts)))
        case _:
            return part


def _shown(part: ResultPart) -> ResultPart:
    """A part of a result: what no one here knows was made by a tool of the client's, and is its JSON as text."""
    if not isinstance(part, Opaque) or part.type in _PLACEHOLDERS:
        return part
    return Text(bytes(part.raw).decode())


def _known(part: Opaque) -> Opaque:
    if part.type in _PLACEHOLDERS:
        return part
    listed = ", ".join(_TAKEN)
    hint = nearest(part.type, _TAKEN)
    raise RequestError(f"unknown content part {quote(part.type)}{hint}; expected one of {listed}", part.path)
