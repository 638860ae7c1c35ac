"""K2 Horizon: GLM's tags with other names.

    <ifm|tool_calls>
    <ifm|tool_call>get_weather
    <ifm|arg_key>city</ifm|arg_key>
    <ifm|arg_value>Paris</ifm|arg_value>
    </ifm|tool_call>
    </ifm|tool_calls>

Where the template's `tool_call_format` is `xml_typed`, `<ifm|arg_type>string</ifm|arg_type>` is written between name
and value and is read too; the default writes no type. The section may be missing. Strings are raw, including trailing
spaces.

Source: the template's output in public tests of K2 Horizon's users (2026-09), and vLLM 0.33's parser k2_horizon, which
reads its three forms; the template itself was not available. The third, JSON between the same tags, is read too.
"""

from dataclasses import replace
from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.key_value_tags import KeyValueTags

TAGS: Final = KeyValueTags(
    section=("<ifm|tool_calls>", "</ifm|tool_calls>"),
    call=("<ifm|tool_call>", "</ifm|tool_call>"),
    key=("<ifm|arg_key>", "</ifm|arg_key>"),
    type=("<ifm|arg_type>", "</ifm|arg_type>"),
    value=("<ifm|arg_value>", "</ifm|arg_value>"),
)

REASONING_TAGS: Final = {f"<ifm|{name}>": f"</ifm|{name}>" for name in ("think", "think_fast", "think_faster")}

WRITER: Final = replace(TAGS, type=("", "")).writer

FORMAT: Final = text_format(
    name="k2_horizon",
    model_families="K2 Horizon",
    source="as vLLM 0.33's parser k2_horizon reads it (2026-10); the template was not seen",
    read=TAGS.markup(REASONING_TAGS),
    write_call=WRITER.write_call,
    constrain_call=WRITER.constrain_call,
    opener=TAGS.section[0],
    markers=(*TAGS.markers(), *REASONING_TAGS, *REASONING_TAGS.values()),
    section=TAGS.written_section,
)
