"""MiniCPM5: functions and parameters named in attributes, without tags around them.

    <function name="get_weather"><param name="city">Paris</param></function>

A value with `<`, `&` or line breaks is in `<![CDATA[…]]>`. Values are raw; the tool's schema defines their types.

Source: chat template of openbmb/MiniCPM5-1B (2026), as in llama.cpp (2026-10). Python's `True` and `['mon']`, which the
template writes for other values, are written as JSON here.
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import InvokeTags, invoke_format
from dragoman.parsing.tool_markup import TOOL_RESPONSE

TAGS: Final = InvokeTags(
    call=("<function", "</function>"),
    parameter=("<param", "</param>"),
    quote=("<![CDATA[", "]]>"),
    lines=False,
)

FORMAT: Final = invoke_format(
    TAGS,
    name="minicpm5",
    model_families="MiniCPM5",
    source="chat template of openbmb/MiniCPM5-1B (2026), as llama.cpp has it (2026-10)",
    result=TOOL_RESPONSE,
)
