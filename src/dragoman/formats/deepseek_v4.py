"""DeepSeek V4: the DSML of V3.2 (`deepseek_v32`) with another section name.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

Strings are raw, including trailing spaces; other values are JSON. Without parameters, the call contains an empty line.
Also accepted: a self-closing call, one JSON object instead of the parameters, calls outside a section.

Source: the reference encoder of DeepSeek-V4 (2026-04), as in vLLM 0.33, tokenizers/deepseek_v4_encoding.py;
deepseek-ai-DeepSeek-V4.jinja and -V4-Flash-0731.jinja in models/templates of llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import dsml_tags, invoke_format
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = dsml_tags("｜DSML｜", "tool_calls")
OTHER: Final = ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>")
"""The section of V3.2; the model may write its name."""

FORMAT: Final = invoke_format(
    TAGS,
    name="deepseek_v4",
    model_families="DeepSeek V4",
    source="reference encoder of DeepSeek-V4 (2026-04), as vLLM 0.33 and llama.cpp have it",
    other_sections=(OTHER,),
    result=ToolResultMarkup("<tool_result>", "</tool_result>"),
    aliases=("deepseekv4",),
)
