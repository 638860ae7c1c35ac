"""Hermes: a JSON object between tags.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Each call has its own block. Reasoning is in `<think>…</think>` before the answer. Written by Hermes 2/3, Qwen2.5,
Qwen3, QwQ, SmolLM3, Granite 4 and many fine-tunes; Dragoman also prompts models without a tool format of their own
to write it.

Also accepted (docs/deviations.md): keys in any order, `parameters` for `arguments`, arguments as a JSON string, several
objects in one block, a missing closing tag. A block in code is an example, not a call
(parsing/untagged/quoted_calls.py). In lenient reading, untagged objects at the start of a reply, fenced or not, are
calls too. All other text is the answer.

Source: NousResearch/Hermes-Function-Calling README (2024-03); chat templates of Hermes 2 Pro (2024),
Qwen2.5-7B-Instruct (2024-09), QwQ-32B and Qwen3-0.6B (2025-04), Granite 4.0 and 4.1 (2025-10, 2026), MiMo-VL (2025), as
in llama.cpp (2026-10). Reka Edge's template writes no separator between calls; SmolLM3's shows no past calls.
"""

import json
from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.tool_markup import TOOL_RESPONSE
from dragoman.parsing.untagged.code_fence import read_fence_open
from dragoman.parsing.untagged.untagged_json import drop_stray_brace, read_fenced_calls, read_one_call
from dragoman.text.scanner import Parser, Scanner

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
TAG: Final = (OPEN, CLOSE)
RESULT_MARKER: Final = "<tool_result"
"""Begins a tool result for models without a format of their own; after a call, one from the model is fabricated."""


def read_block(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
    """Reads what follows an opening tag. Returns True if it was a call."""
    s.start_capture(s.skipped_space + OPEN)
    next_call = yield from s.literal(OPEN, after_space=True)
    if fence := (yield from read_fence_open(s)):
        is_complete = yield from read_fenced_calls(s, sink, fence, TAG, tagged=True)
        if is_complete and not (yield from s.literal(CLOSE, after_space=True)):
            sink.warn("missing_closing_tag", f"expected {CLOSE} after the calls")
    else:
        is_complete = yield from _calls(s, sink)
    if next_call and is_complete:
        sink.warn("stray_opening_tag", f"dropped {OPEN} that opens nothing", OPEN)
    s.stop_capture()
    return is_complete


def _calls(s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Reads calls in sequence, or a JSON array of them, and the closing tag. Returns True if there was a call."""
    listed = yield from s.literal("[", after_space=True)
    if listed and (yield from s.literal("]", after_space=True)):
        yield from s.literal(CLOSE, after_space=True)
        sink.warn("empty_call_section", "dropped a list with no call in it", s.captured())
        return True
    if listed:
        sink.set_in_list(True)
    is_complete = False
    while (yield from read_one_call(s, sink)):
        is_complete = True
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
    return is_complete


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
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
