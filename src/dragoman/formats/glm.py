"""GLM: the tool's name, then tags around each parameter's name and value.

    <tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>

Written by GLM-4.5, GLM-4.6 and Laguna XS; GLM-4.7 and later write no white space between the tags (`glm47`, which reads
the same text). Ling 3 writes no line break after a value. Strings are raw, including trailing spaces. Also accepted: a
missing last `</arg_value>`.

Source: chat templates of zai-org/GLM-4.6 (2025-09) and poolside's Laguna-XS.2 and XS-2.1 (2026), as in llama.cpp
(2026-10).
"""

from dataclasses import replace
from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags
from dragoman.parsing.tool_markup import TOOL_RESPONSE

TAGS: Final = KeyValueTags()
BOXES: Final = ("<|begin_of_box|>", "<|end_of_box|>")
"""Around the final answer of vision models."""

FORMAT: Final = text_format(
    name="glm",
    model_families="GLM-4.5, GLM-4.6, Laguna XS, Ling 3",
    source="chat templates of GLM-4.6 (2025-09), Laguna-XS.2, Laguna-XS-2.1 (2026), as llama.cpp has them (2026-10)",
    read=replace(TAGS.markup({"<think>": "</think>"}), boxes=BOXES),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call[0],
    markers=(*TAGS.markers(), *BOXES, "<think>", "</think>"),
    result=TOOL_RESPONSE,
    aliases=("glm45", "ling3", "poolside_v1"),
)
