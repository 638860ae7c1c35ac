"""Solar Open: messages of reasoning, answer or calls, each after its own token.

    <|think|>They want the weather.<|end|><|begin|>assistant<|tool_calls|>
    <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Paris"}<|tool_call:end|>
    <|calls|>

(Solar-Open-100B.; the line breaks were added here.) The answer is `<|content|>…<|flush|>`. The prompt ends with
`<|begin|>assistant`. The id comes first and has ten letters or digits. Also accepted: no id, no `<|tool_calls|>`, no
`<|tool_call:end|>`.

Source: chat template of upstage/Solar-Open-100B (2025-12), as in llama.cpp (2026-10).
"""

import re
from collections.abc import Mapping
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, RouteKind
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson, head_in_header
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

BEGIN, THINK, CONTENT, CALLS = "<|begin|>", "<|think|>", "<|content|>", "<|tool_calls|>"
OPEN, NAME, ARGUMENTS, CLOSE = "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"
ENDS: Final = dict.fromkeys(("<|end|>", "<|flush|>", "<|calls|>"), ANYTHING)
KINDS: Final[Mapping[str, RouteKind]] = {THINK: "reasoning", CONTENT: "text", CALLS: "nothing", ARGUMENTS: "call"}
RESULT: Final = "<|tool_response:begin|>{id}<|tool_response:name|>{name}<|tool_response:result|>"
_CALL = re.compile(rf"\s*{re.escape(OPEN)}\s*([^<\s]*)\s*{re.escape(NAME)}\s*([^<]+?)\s*")


def route(header: str, marker: str) -> ChannelRoute | None:
    """Routes a message by its token, if the header contains nothing but the role."""
    is_match = _CALL.fullmatch(header) if marker == ARGUMENTS else header.strip() in ("", f"{BEGIN}assistant")
    return ChannelRoute(KINDS[marker]) if is_match else None


def head(header: str) -> CallHead | None:
    """Returns the id and name in the header."""
    match = _CALL.fullmatch(header.removesuffix(ARGUMENTS))
    return CallHead(match[2], match[1]) if match else None


def call_wrapper(name: str, id: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{id}{NAME}{name}{ARGUMENTS}", CLOSE


FORMAT: Final = json_format(
    name="solar",
    model_families="Solar Open 100B",
    source="chat template of upstage/Solar-Open-100B (2025-12), as llama.cpp has it (2026-10)",
    read=Channels(
        starts=(BEGIN, THINK, CONTENT, CALLS, OPEN),
        bodies=tuple(KINDS),
        route=route,
        call=NameThenJson(head_in_header(head), closers=(CLOSE,)).read,
        ends=ENDS,
        breaks=(BEGIN, OPEN, CLOSE),
    ),
    call_wrapper=call_wrapper,
    opener=CALLS,
    reasoning_wrapper=(THINK, f"<|end|>{BEGIN}assistant"),
    markers=(BEGIN, THINK, CONTENT, CALLS, OPEN, NAME, ARGUMENTS, CLOSE, *ENDS),
    section=(CALLS, "<|calls|>"),
    separator="",
    result=ToolResultMarkup(RESULT, "<|tool_response:end|>"),
    tools=ToolListMarkup(("<|tools:begin|>", "<|tools:end|>"), ("<|tool:begin|>{", "}<|tool:end|>"), ""),
    aliases=("solar_open",),
)
