"""LongCat: GLM's tags with other names.

    <longcat_tool_call>get_weather
    <longcat_arg_key>city</longcat_arg_key>
    <longcat_arg_value>Paris</longcat_arg_value>
    </longcat_tool_call>

Written by LongCat-Flash-Lite and later; LongCat-Flash-Chat writes JSON between the same outer tags. Strings are raw,
including trailing spaces.

Source: the `longcat` parser of mlx-lm 0.32 and public programs of its users (2026), according to which results are in
`<longcat_tool_response>`; the template of meituan-longcat/LongCat-Flash-Lite (2026-01) was not available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = KeyValueTags(
    call=("<longcat_tool_call>", "</longcat_tool_call>"),
    key=("<longcat_arg_key>", "</longcat_arg_key>"),
    value=("<longcat_arg_value>", "</longcat_arg_value>"),
)

FORMAT: Final = text_format(
    name="longcat_xml",
    model_families="LongCat-Flash-Lite and later",
    source="as mlx-lm 0.32's parser longcat reads it (2026-10); the template was not seen",
    read=TAGS.markup({"<longcat_think>": "</longcat_think>", "<think>": "</think>"}),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call[0],
    markers=(*TAGS.markers(), "<longcat_think>", "</longcat_think>", "<think>", "</think>"),
    result=ToolResultMarkup("<longcat_tool_response>\n", "\n</longcat_tool_response>"),
)
