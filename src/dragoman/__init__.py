"""Real tool calls between any agent and any model.

    reader = dragoman.ToolCallReader("hermes", tools)       text in, events out, as it streams
    reply = dragoman.parse(text, "hermes", tools)           the same of a whole text
    messages = dragoman.render_messages(body, "hermes")     tools and conversation as plain messages
    spans = dragoman.explain(text, "hermes", tools)         what became of each piece of it, and why
    tools = dragoman.convert_tools(tools, api="openai_chat")  definitions, calls and results of one API for another
    calls = dragoman.assemble_calls(chunks)                 calls that a server streams in pieces
    found = dragoman.detect_format("Qwen/Qwen3-8B")            which format a model writes
    answer = dragoman.EngineSession(body, found.format, …)         a client's request, answered by an engine of yours

Packages beside these: `formats` (how models write), `dialects` (how APIs ask and answer), `backends` and `gateway`.
"""

from dragoman.api.assemble import AssembledCalls, CallAssembler, assemble_calls
from dragoman.api.convert import ConvertedItems, convert_calls, convert_results, convert_tools
from dragoman.api.engine_session import EngineSession
from dragoman.api.parse import (
    ToolCallReader,
    build_constraint,
    explain,
    parse,
    render_messages,
    to_json_schema,
    validate_call,
)
from dragoman.api.prompt_tail import open_reasoning_prefix
from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import Gbnf, to_gbnf
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core.collect import Collector, collect
from dragoman.core.errors import DragomanError
from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
    UsageUpdate,
)
from dragoman.core.messages import (
    Message,
    Reasoning,
    Reply,
    Request,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from dragoman.identify import FormatMatch, detect_format
from dragoman.parsing.trace import Remark, Span

__version__ = "0.1.0"

__all__ = [
    "AnyEvent",
    "AssembledCalls",
    "CallAssembler",
    "Collector",
    "Constraint",
    "ConvertedItems",
    "DragomanError",
    "EngineSession",
    "Failure",
    "Finish",
    "FormatMatch",
    "Gbnf",
    "Message",
    "Notice",
    "Reasoning",
    "ReasoningDelta",
    "RefusalDelta",
    "Remark",
    "Reply",
    "Request",
    "Span",
    "Start",
    "Text",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallIncomplete",
    "ToolCallReader",
    "ToolCallStart",
    "ToolChoice",
    "ToolResult",
    "Usage",
    "UsageUpdate",
    "assemble_calls",
    "build_constraint",
    "collect",
    "convert_calls",
    "convert_results",
    "convert_tools",
    "detect_format",
    "explain",
    "open_reasoning_prefix",
    "parse",
    "render_messages",
    "to_gbnf",
    "to_json_schema",
    "to_structural_tag",
    "validate_call",
]
