"""IQuest: GLM's tags within its own call tag, without white space between them.

    <iquest_tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></iquest_tool_call>

Strings are raw, including trailing spaces. White space between the tags is ignored.

Source: the `iquest_q1` parser of SGLang 0.5.23 (2026-10); the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags

TAGS: Final = KeyValueTags(call=("<iquest_tool_call>", "</iquest_tool_call>"), line="")

FORMAT: Final = text_format(
    name="iquest",
    model_families="IQuest Q1",
    source="as SGLang 0.5.23's parser iquest_q1 reads it (2026-10); the template was not seen",
    read=TAGS.markup({"<think>": "</think>"}),
    write_call=TAGS.writer.write_call,
    constrain_call=TAGS.writer.constrain_call,
    opener=TAGS.call[0],
    markers=(*TAGS.markers(), "<think>", "</think>"),
    separator="",
    aliases=("iquest_q1",),
)
