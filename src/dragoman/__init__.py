"""Real tool calls between any agent and any model.

    calls = dragoman.parse_calls(text, "hermes", tools)      the tool calls in a model's text
    reply = dragoman.parse(text, "hermes", tools)            text, reasoning and tool calls, in order
    reader = dragoman.ToolCallReader("hermes", tools)        the same while the text streams, as events
    session = dragoman.EngineSession(body, "hermes", …)      a client's request, served by your own engine
    found = dragoman.detect_format("Qwen/Qwen3-8B")          which format a model writes
    items = dragoman.convert_tools(tools, api="openai_chat") tools, calls and results of one API for another

`dragoman.types` has the other types of values. docs/library.md documents every name.

Packages next to these: `formats` (how models write), `dialects` (the vendors' APIs), `backends` and `gateway`.
"""

from dragoman import types
from dragoman.api.apply_steps import apply_steps
from dragoman.api.assemble import CallAssembler, assemble_calls
from dragoman.api.constrain import build_constraint, to_json_schema
from dragoman.api.convert import convert_calls, convert_results, convert_tools
from dragoman.api.engine_session import EngineSession
from dragoman.api.parse import (
    ToolCallReader,
    explain,
    parse,
    parse_calls,
    render_messages,
    validate_call,
)
from dragoman.api.prompt_suffix import open_reasoning_prefix
from dragoman.constraints.gbnf import to_gbnf
from dragoman.constraints.structural_tag import to_structural_tag
from dragoman.core.collect import collect
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
from dragoman.core.messages import Tool, ToolCall, ToolChoice
from dragoman.dialects import Api
from dragoman.identify import detect_format

__version__ = "0.1.0"

__all__ = [
    "AnyEvent",
    "Api",
    "CallAssembler",
    "DragomanError",
    "EngineSession",
    "Failure",
    "Finish",
    "Notice",
    "ReasoningDelta",
    "RefusalDelta",
    "Start",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallIncomplete",
    "ToolCallReader",
    "ToolCallStart",
    "ToolChoice",
    "UsageUpdate",
    "apply_steps",
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
    "parse_calls",
    "render_messages",
    "to_gbnf",
    "to_json_schema",
    "to_structural_tag",
    "types",
    "validate_call",
]
