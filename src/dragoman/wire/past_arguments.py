"""Arguments of past calls as every server takes them: one JSON object.

A client sends a call back as it got it, also one whose arguments are not JSON. Strict servers refuse the request, and
so does the next one of that conversation. What can be repaired is; anything else becomes the text of one member.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import quote
from dragoman.core.events import Notice
from dragoman.core.messages import JsonText, Message, Part, ToolCall
from dragoman.text.json_repairs import ALL_REPAIRS
from dragoman.text.unclosed_json import ClosableJsonStream
from dragoman.text.unwrap_arguments import unwrap_arguments

MEMBER: Final = "input"
"""What holds arguments that nothing can make JSON of."""


def with_objects(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Notice, ...]]:
    """The conversation with the arguments of each call as an object, and what had to be repaired."""
    bad = [call for call in _calls(messages) if not _is_object(call.arguments)]
    if not bad:
        return tuple(messages), ()
    fixed = tuple(replace(message, parts=tuple(map(_whole, message.parts))) for message in messages)
    told = "the arguments of a past call of {} were not a JSON object, and were repaired"
    return fixed, tuple(Notice("json_repaired", told.format(quote(call.name)), call.arguments) for call in bad)


def as_object(arguments: JsonText) -> JsonText:
    """The arguments as an object: repaired, completed, or as the text of one member."""
    found = unwrap_arguments(arguments, ALL_REPAIRS)
    if not found.problem:
        return found.arguments
    value = ClosableJsonStream()
    taken = value.feed(arguments, 0)
    if not value.in_string_value:  # what may go on is ended by a character that no JSON goes on with
        taken += value.feed(arguments[taken:] + "<", 0)
    if arguments.lstrip().startswith("{") and taken == len(arguments) and value.complete():
        text = value.drain()
        if _is_object(text):
            return text
    return json.dumps({MEMBER: arguments}, ensure_ascii=False)


def _calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    return (part for message in messages for part in message.parts if isinstance(part, ToolCall))


def _whole(part: Part) -> Part:
    if not isinstance(part, ToolCall) or _is_object(part.arguments):
        return part
    return replace(part, arguments=as_object(part.arguments))


def _is_object(arguments: JsonText) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
