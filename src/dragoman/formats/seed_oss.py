"""Seed-OSS: the tags of Qwen3-Coder within its own tags for calls and reasoning.

    <seed:think>Look first.</seed:think>
    <seed:tool_call>
    <function=get_weather>
    <parameter=city>Paris</parameter>
    </function>
    </seed:tool_call>

Written by Seed-OSS and Doubao Seed. The template writes no line break next to a value. One at each end is not part of
the value, as in Qwen3-Coder; one only at the end is. The template writes other values as Python's `True` and `['mon']`;
Dragoman writes JSON. Also accepted: what `qwen3_xml` accepts.

Source: chat template of ByteDance-Seed/Seed-OSS-36B-Instruct (2025-08), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.function_tags import FunctionTags

TAGS: Final = FunctionTags(("<seed:tool_call>", "</seed:tool_call>"), inline=True)

FORMAT: Final = text_format(
    name="seed_oss",
    model_families="Seed-OSS, Doubao Seed",
    source="chat template of ByteDance-Seed/Seed-OSS-36B-Instruct (2025-08)",
    read=TAGS.markup({"<seed:think>": "</seed:think>"}),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call_wrapper[0],
    markers=(*TAGS.markers(), "<seed:think>", "</seed:think>"),
)
