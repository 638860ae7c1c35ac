"""Hunyuan: GLM's tags, with a separator after the name and a section around the calls.

    <tool_calls>
    <tool_call>get_weather<tool_sep>
    <arg_key>city</arg_key>
    <arg_value>Paris</arg_value>
    </tool_call>
    </tool_calls>

The published tokenizers write each tag with a suffix, `<tool_calls:opensource>`; Hy4 without white space between them.
Strings are raw, including trailing spaces. Also accepted: no section, no separator.

Source: chat template of tencent/Hy3 (2026), as in llama.cpp (2026-10); for Hy4 only the `hy_v4` parser of vLLM 0.33.
"""

from dataclasses import replace
from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = KeyValueTags(section=("<tool_calls>", "</tool_calls>"), name_end="<tool_sep>")
OPEN_SOURCE: Final = KeyValueTags(
    section=("<tool_calls:opensource>", "</tool_calls:opensource>"),
    call=("<tool_call:opensource>", "</tool_call:opensource>"),
    name_end="<tool_sep:opensource>",
    key=("<arg_key:opensource>", "</arg_key:opensource>"),
    value=("<arg_value:opensource>", "</arg_value:opensource>"),
)
REASONING_TAGS: Final = {"<think>": "</think>", "<think:opensource>": "</think:opensource>"}
_OTHER: Final = TAGS.markup(REASONING_TAGS)
_PUBLISHED: Final = OPEN_SOURCE.markup(REASONING_TAGS)
MARKUP: Final = replace(
    _PUBLISHED, calls={**_PUBLISHED.calls, **_OTHER.calls}, closers=(*_PUBLISHED.closers, *_OTHER.closers)
)

FORMAT: Final = text_format(
    name="hy_v3",
    model_families="Hunyuan Hy3, Hy4",
    source="chat template of tencent/Hy3 (2026), as llama.cpp has it; vLLM 0.33's parser hy_v4 (2026-10)",
    read=MARKUP,
    write_call=OPEN_SOURCE.writer.write_call,
    constrain_call=OPEN_SOURCE.writer.constrain_call,
    opener=OPEN_SOURCE.section[0],
    markers=(*TAGS.markers(), *OPEN_SOURCE.markers(), *REASONING_TAGS, *REASONING_TAGS.values()),
    section=OPEN_SOURCE.written_section,
    result=ToolResultMarkup(
        "<tool_responses:opensource>\n<tool_response:opensource>\n",
        "\n</tool_response:opensource>\n</tool_responses:opensource>",
    ),
    aliases=("hy_v4",),
)
