"""IQuest Coder V2: GLM's tags within its own call tag.

    <iquestcoder_tool_call>get_weather
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </iquestcoder_tool_call>

Strings are raw, including trailing spaces. White space between the tags is ignored. IQuest Q1 writes the format
`iquest`.

Source: https://github.com/vllm-project/vllm, vllm/tool_parsers/iquest_coder_v2_tool_parser.py and its tests, an open
change (2026-10); the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags

TAGS: Final = KeyValueTags(call=("<iquestcoder_tool_call>", "</iquestcoder_tool_call>"))

FORMAT: Final = text_format(
    name="iquest_coder",
    model_families="IQuest Coder V2",
    source="vLLM's parser iquest_coder_v2, an open change (2026-10); the template was not seen",
    read=TAGS.markup({"<think>": "</think>"}),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call[0],
    markers=(*TAGS.markers(), "<think>", "</think>", "<|iquestcoder_assistant|>"),
    aliases=("iquest_coder_v2",),
)
