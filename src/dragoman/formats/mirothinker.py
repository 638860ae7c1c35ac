"""MiroThinker: a tool of an MCP server between tags, with its arguments as one JSON object.

    <use_mcp_tool>
    <server_name>generic-extras</server_name>
    <tool_name>get_weather</tool_name>
    <arguments>
    {"city": "Paris"}
    </arguments>
    </use_mcp_tool>

The server's name is ignored: any is read, the template's is written. One block may contain several calls. Reasoning is
in `<think>…</think>`. With prompts written for Qwen3 it writes `<tool_call>` and JSON, which is read too.

Source: https://github.com/ggml-org/llama.cpp, models/templates/MiroThinker-v1.jinja (2026-10), which chooses the
server's name by the tool's.
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.format import THINK
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_block import KEYS, JsonBlock
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.parsing.shapes.tagged import WrappedCalls
from dragoman.parsing.tool_markup import TOOL_RESPONSE
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, CLOSE = "<use_mcp_tool>", "</use_mcp_tool>"
SERVER, NAME, ARGUMENTS = ((f"<{tag}>", f"</{tag}>") for tag in ("server_name", "tool_name", "arguments"))
JSON_OPEN, JSON_CLOSE = "<tool_call>", "</tool_call>"


def head(s: Scanner, opener: str) -> Parser[CallHead | None]:
    """Reads the server, which may be missing, and the name, up to the arguments."""
    if opener == SERVER[0]:
        server = yield from s.field(markers(SERVER[1], "<"))
        if server is None or server[1] != SERVER[1] or not (yield from s.literal(NAME[0], after_space=True)):
            return None
    field = yield from s.field(markers(NAME[1], "<"))
    if field is None or field[1] != NAME[1] or not (yield from s.literal(ARGUMENTS[0], after_space=True)):
        return None
    return CallHead(field[0].strip())


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    named = f"{SERVER[0]}generic-extras{SERVER[1]}\n{NAME[0]}{name}{NAME[1]}\n"
    return f"{named}{ARGUMENTS[0]}\n", f"\n{ARGUMENTS[1]}"


CALLS: Final = WrappedCalls(NameThenJson(head, closers=(ARGUMENTS[1],)).read, (SERVER[0], NAME[0]), CLOSE)
MARKUP: Final = Markup(
    calls={OPEN: CALLS.read, JSON_OPEN: JsonBlock(KEYS, JSON_CLOSE).read},
    reasoning_tags=THINK,
    closers=(CLOSE, JSON_CLOSE, ARGUMENTS[1]),
)

FORMAT: Final = json_format(
    name="mirothinker",
    model_families="MiroThinker",
    source="MiroThinker-v1.jinja of llama.cpp (2026-10)",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN, CLOSE, *SERVER, *NAME, *ARGUMENTS, JSON_OPEN, JSON_CLOSE, "<think>", "</think>"),
    section=(f"{OPEN}\n", f"\n{CLOSE}"),
    result=TOOL_RESPONSE,
)
