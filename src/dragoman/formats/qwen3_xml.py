"""Qwen3-Coder: a function and its parameters between tags, with raw values.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Written by Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5 and later, MiMo. One line break at each end of a value
is not part of it. Also accepted: no `<tool_call>` around it, no line breaks, a missing `</parameter>`, a call in
unclosed reasoning.

Source: chat templates of Qwen3-Coder (2025-07), Qwen3.5-4B (2026-02), NVIDIA-Nemotron-3-Nano-30B-A3B (2025-12), as in
llama.cpp (2026-10). Step 3.5's writes no separator between calls. All of them write Python's `True` and `None`, which
Qwen's later templates (3.6) correct; Dragoman writes JSON.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.function_tags import FunctionTags
from dragoman.parsing.tool_markup import TOOL_RESPONSE

TAGS: Final = FunctionTags(("<tool_call>", "</tool_call>"))

FORMAT: Final = text_format(
    name="qwen3_xml",
    model_families="Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step 3.5 and later, MiMo",
    source="chat templates of Qwen3-Coder, Qwen3.5, Nemotron 3 Nano, as llama.cpp has them (2026-10)",
    read=TAGS.markup({"<think>": "</think>"}),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call_wrapper[0],
    reasoning_wrapper=("<think>\n", "\n</think>\n\n"),
    markers=(*TAGS.markers(), "<think>", "</think>"),
    result=TOOL_RESPONSE,
    aliases=("qwen3_coder", "qwen_xml", "mimo", "step3p5"),
)
