"""The types of values that the library accepts and returns, for annotations and `match` statements.

    from dragoman.types import Reply, Text

`dragoman` itself exports the functions, the events, `Tool`, `ToolCall` and `ToolChoice`. The other types are here,
because names such as `Message` and `Text` also exist in the SDKs of the vendors.
"""

from dragoman.api.apply_steps import StepsNow
from dragoman.api.assemble import AssembledCalls
from dragoman.api.convert import ConvertedItems
from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import Gbnf
from dragoman.core.messages import (
    Audio,
    Document,
    FinishReason,
    Image,
    JsonText,
    MediaSource,
    Message,
    Part,
    Reasoning,
    Refusal,
    Reply,
    Request,
    ResultPart,
    Role,
    Sampling,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    UnknownPart,
    Usage,
)
from dragoman.identify import FormatMatch
from dragoman.parsing.format import Format
from dragoman.parsing.trace import Note, Span

__all__ = [
    "AssembledCalls",
    "Audio",
    "Constraint",
    "ConvertedItems",
    "Document",
    "FinishReason",
    "Format",
    "FormatMatch",
    "Gbnf",
    "Image",
    "JsonText",
    "MediaSource",
    "Message",
    "Note",
    "Part",
    "Reasoning",
    "Refusal",
    "Reply",
    "Request",
    "ResultPart",
    "Role",
    "Sampling",
    "Span",
    "StepsNow",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "UnknownPart",
    "Usage",
]
