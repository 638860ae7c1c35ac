"""Hermes: a JSON object between tags.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Several calls are several blocks. Thoughts stand in `<think>…</think>` before the answer. Written by Hermes 2/3,
Qwen2.5, Qwen3, QwQ, SmolLM3, Granite 4 and many tunes; also what Dragoman asks of models that know no tool format.

Read with these liberties (docs/liberties.md): keys in any order, `parameters` for `arguments`, arguments in a string,
several objects in one block, a missing closing tag. A block in code is an example, not a call
(parsing/quoted_calls.py). In lenient reading a reply that begins with bare objects, fenced or not, has calls too. What
cannot be a call is text.

Source: NousResearch/Hermes-Function-Calling README (2024-03); chat templates of Hermes 2 Pro (2024),
Qwen2.5-7B-Instruct (2024-09), QwQ-32B and Qwen3-0.6B (2025-04), Granite 4.0 and 4.1 (2025-10, 2026), MiMo-VL (2025), as
llama.cpp has them (2026-10). Reka Edge's puts nothing between calls; SmolLM3's shows no past calls.
"""

import json
from typing import Final

from dragoman.parsing.code_fence import read_fence_open
from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.tool_markup import TOOL_RESPONSE
from dragoman.parsing.untagged_json import drop_stray_brace, read_fenced_calls, read_one_call
from dragoman.text.scanner import Parser, Scanner

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
TAG: Final = (OPEN, CLOSE)
RESULT_MARKER: Final = "<tool_result"
"""How models that know no format are shown results: after a call, one that it writes itself is made up."""


def read_block(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
    """What follows an opening tag; whether it was a call."""
    s.start_capture(s.skipped_space + OPEN)
    again = yield from s.literal(OPEN, after_space=True)
    if fence := (yield from read_fence_open(s)):
        whole = yield from read_fenced_calls(s, sink, fence, TAG, tagged=True)
        if whole and not (yield from s.literal(CLOSE, after_space=True)):
            sink.warn("missing_closing_tag", f"expected {CLOSE} after the calls")
    else:
        whole = yield from _calls(s, sink)
    if again and whole:
        sink.warn("stray_opening_tag", f"dropped {OPEN} that opens nothing", OPEN)
    s.stop_capture()
    return whole


def _calls(s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Calls one after the other, or a JSON array of them, and the closing tag; whether there is one."""
    listed = yield from s.literal("[", after_space=True)
    if listed and (yield from s.literal("]", after_space=True)):
        yield from s.literal(CLOSE, after_space=True)
        sink.warn("empty_call_section", "dropped a list with no call in it", s.captured())
        return True
    if listed:
        sink.set_in_list(True)
    whole = False
    while (yield from read_one_call(s, sink)):
        whole = True
        if not listed:
            yield from drop_stray_brace(s, sink)
        elif (yield from s.literal("]", after_space=True)):
            sink.set_in_list(False)
        s.start_capture()
        comma = yield from s.literal(",", after_space=True)
        if (yield from s.literal(CLOSE, after_space=True)):
            break
        if not comma and s.consume_truncated(CLOSE):
            break
        if (yield from s.peek(after_space=True)) != "{":
            sink.warn("missing_closing_tag", f"expected {CLOSE} after the call")
            sink.text(s.captured() if comma else "")
            break
    if not s.truncated:
        sink.set_in_list(False)
    return whole


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """What stands before and behind the arguments."""
    return f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": ', f"}}\n{CLOSE}"


FORMAT: Final = json_format(
    name="hermes",
    model_families="Hermes 2/3, Qwen2.5, Qwen3, QwQ, SmolLM3, Granite 4; models without a tool format",
    source="NousResearch/Hermes-Function-Calling (2024-03); chat templates of Qwen2.5 and Qwen3 in llama.cpp (2026-10)",
    read=Markup(
        calls={OPEN: read_block},
        reasoning_tags={"<think>": "</think>"},
        closers=(CLOSE,),
        result_markers=(RESULT_MARKER,),
        example_tag=TAG,
    ),
    call_wrapper=call_wrapper,
    opener=OPEN,
    reasoning_wrapper=("<think>\n", "\n</think>\n\n"),
    markers=(OPEN, CLOSE, RESULT_MARKER, "</tool_result", "<think>", "</think>"),
    result=TOOL_RESPONSE,
    aliases=("qwen", "qwen25", "qwen2_5"),
)
