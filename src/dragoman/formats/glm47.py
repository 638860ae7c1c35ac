"""GLM-4.7 and later: the tags of GLM-4.5 (`glm`) without white space between them.

    <tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>

Written by GLM-4.7 to GLM-5.3, Laguna S and Spark 2.5. Strings are raw, including trailing spaces. Also accepted: what
`glm` accepts.

Source: chat templates of zai-org/GLM-4.7-Flash (2026-01), poolside/Laguna-S-2.1 (2026) and XHToken/Spark-X2.5 (2026),
as in llama.cpp (2026-10).
"""

from dataclasses import replace
from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = KeyValueTags(line="")
BOXES: Final = ("<|begin_of_box|>", "<|end_of_box|>")
"""Around the final answer of vision models."""

FORMAT: Final = text_format(
    name="glm47",
    model_families="GLM-4.7 to GLM-5.3, Laguna S, Spark 2.5",
    source="chat templates of GLM-4.7-Flash, Laguna-S-2.1, Spark-X2.5 (2026), as llama.cpp has them (2026-10)",
    read=replace(TAGS.markup({"<think>": "</think>"}), boxes=BOXES),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    calls={},  # glm reads them too
    opener=TAGS.call[0],
    markers=(*TAGS.markers(), *BOXES, "<think>", "</think>"),
    separator="",
    result=ToolResultMarkup("<tool_response>", "</tool_response>"),
    aliases=("spark25",),
)
