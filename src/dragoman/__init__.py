"""Real tool calls between any agent and any model.

    reader = dragoman.ToolCallReader("hermes", tools)       text in, events out, as it streams
    reply = dragoman.parse(text, "hermes", tools)           the same of a whole text
    messages = dragoman.render(body, "hermes")              a request's tools and conversation as plain messages
    spans = dragoman.explain(text, "hermes", tools)         what became of each piece of it, and why
    tools = dragoman.convert_tools(tools, to="openai_chat")  definitions, calls and results of one API for another
    calls = dragoman.assemble_calls(chunks)                 calls that a server streams in pieces
    found = dragoman.format_for("Qwen/Qwen3-8B")            which format a model writes
    answer = dragoman.Answer(body, found.format, …)         a client's request, answered by an engine of yours

Packages beside these: `formats` (how models write), `dialects` (how APIs ask and answer), `backends` and `gateway`.
"""

from dragoman.api.assemble import Assembled, CallAssembler, assemble_calls
from dragoman.api.convert import Converted, convert_calls, convert_results, convert_tools
from dragoman.api.engine_session import Answer
from dragoman.api.parse import ToolCallReader, check_call, constrain, explain, json_schema, parse, render
from dragoman.api.prompt_tail import prompt_tail
from dragoman.constraints.constraint import Constraint
from dragoman.constraints.gbnf import Gbnf, gbnf
from dragoman.constraints.structural_tag import structural_tag
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
from dragoman.identify import Identified, format_for
from dragoman.parsing.trace import Remark, Span

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AnyEvent",
    "Assembled",
    "CallAssembler",
    "Collector",
    "Constraint",
    "Converted",
    "DragomanError",
    "Failure",
    "Finish",
    "Gbnf",
    "Identified",
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
    "check_call",
    "collect",
    "constrain",
    "convert_calls",
    "convert_results",
    "convert_tools",
    "explain",
    "format_for",
    "gbnf",
    "json_schema",
    "parse",
    "prompt_tail",
    "render",
    "structural_tag",
]
