"""Converts arguments of past calls to what every server accepts: one JSON object.

A client sends a call back as it received it, also if the arguments are not JSON. Strict servers reject that request and
all later ones of the conversation. JSON errors are repaired; text that cannot be repaired becomes the value of one
member.
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

RAW_MEMBER: Final = "input"
"""Member that contains arguments that cannot be repaired."""


def repair_past_arguments(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Notice, ...]]:
    """Returns the messages with the arguments of each call as an object, and notices of the repairs."""
    bad = [call for call in _calls(messages) if not _is_object(call.arguments)]
    if not bad:
        return tuple(messages), ()
    fixed = tuple(replace(message, parts=tuple(map(_with_object, message.parts))) for message in messages)
    told = "the arguments of a past call of {} were not a JSON object, and were repaired"
    return fixed, tuple(Notice("json_repaired", told.format(quote(call.name)), call.arguments) for call in bad)


def to_object(arguments: JsonText) -> JsonText:
    """Returns the arguments as an object: repaired, completed, or as the text of one member."""
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
    return json.dumps({RAW_MEMBER: arguments}, ensure_ascii=False)


def _calls(messages: Iterable[Message]) -> Iterator[ToolCall]:
    return (part for message in messages for part in message.parts if isinstance(part, ToolCall))


def _with_object(part: Part) -> Part:
    if not isinstance(part, ToolCall) or _is_object(part.arguments):
        return part
    return replace(part, arguments=to_object(part.arguments))


def _is_object(arguments: JsonText) -> bool:
    try:
        msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True
