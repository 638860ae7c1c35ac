"""Plain text of a message part."""

import re
from typing import Final, assert_never

from dragoman.core.messages import (
    Audio,
    Document,
    Image,
    Part,
    PreviousResponseRef,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    UnknownPart,
)

_NO_WORD: Final = re.compile(r"\W+")


def part_text(part: Part) -> str:
    """Returns the part as plain text; "" for reasoning, calls and results."""
    match part:
        case Text(text) | Refusal(text):
            return text
        case Document(source, title) if source.text:
            return f"{title}\n{source.text}" if title else source.text
        case Image() | Audio() | Document():
            return f"[{type(part).__name__.lower()}]"
        case UnknownPart(type=kind):
            return f"[{_NO_WORD.sub('_', kind).lower()}]"  # cannot contain a control token
        case Reasoning() | ToolCall() | ToolResult() | PreviousResponseRef():
            return ""
        case _:
            assert_never(part)
