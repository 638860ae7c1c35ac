"""Finds the known format that a response template describes: the one whose calls both read in the same way."""

import json
from collections.abc import Iterator
from typing import Final, TypeAlias

import msgspec

from dragoman.api.parse import parse
from dragoman.api.prompt_suffix import known_formats
from dragoman.core.messages import Reasoning, Text, ToolCall
from dragoman.identify.chat_template import CALLS, TOOL, native_rank
from dragoman.identify.response_template.reader import build_format
from dragoman.identify.response_template.spec import Template
from dragoman.parsing.format import Format

SAMPLE_REASONING: Final = "Where is it?"
ReplyParts: TypeAlias = list[tuple[str, object]]
"""The parts of a reply: their kind or the tool's name, and their text or arguments."""


def match_known_format(template: Template) -> Format | None:
    """Returns the known format; of several the one with most markers in the template; None if there is none."""
    built = build_format(template)
    field = template.fields.get(template.implicit)
    ends = field.closes.literals if field and field.closes else ()
    fitting = [format for format in known_formats() if _reads_as(built, format, ("", *ends))]
    source = str(msgspec.to_builtins(template)).replace("\\", "")
    return min(fitting, key=lambda format: native_rank(format, source), default=None)


def _reads_as(built: Format, format: Format, ends: tuple[str, ...]) -> bool:
    """Whether both read the format's replies alike; the template can require the end of the turn after a reply."""
    for text, expected in _samples(built, format):
        if _read_reply(text, format) != expected or expected not in [_read_reply(text + end, built) for end in ends]:
            return False
    return True


def _samples(built: Format, format: Format) -> Iterator[tuple[str, ReplyParts]]:
    """Replies, and the parts in them."""
    for call in CALLS:
        text = format.section[0] + format.write_call(call) + format.section[1]
        expected: ReplyParts = [(call.name, json.loads(call.arguments))]
        yield text, expected
        for opener, closer in built.reasoning_tags.items():
            yield f"{opener}{SAMPLE_REASONING}{closer}{text}", [("thought", SAMPLE_REASONING), *expected]


def _read_reply(text: str, format: Format) -> ReplyParts:
    parts: ReplyParts = []
    for part in parse(text, format, [TOOL]).parts:
        match part:
            case ToolCall(_, name, arguments):
                parts.append((name, json.loads(arguments)))
            case Reasoning(text):
                parts.append(("thought", text.strip()))
            case Text(text) if text.strip():
                parts.append(("text", text.strip()))
    return parts
