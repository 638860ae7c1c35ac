"""DeepSeek V3.2: DSML, with calls and parameters named in attributes and each value marked as a string or not.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

Strings are raw, including trailing spaces; other values are JSON. Without parameters, the call contains an empty line.
Also accepted: `<｜DSML｜invoke name="f"/>`, one JSON object instead of the parameters, calls outside a section.

Source: encoding/encoding_dsv32.py of deepseek-ai/DeepSeek-V3.2 (2025-12), as in vLLM 0.33, tokenizers/;
models/templates/deepseek-ai-DeepSeek-V3.2.jinja of llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import dsml_tags, invoke_format
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

TAGS: Final = dsml_tags("｜DSML｜", "function_calls")
OTHER: Final = ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>")
"""The section of V4; the model may write its name."""

FORMAT: Final = invoke_format(
    TAGS,
    name="deepseek_v32",
    model_families="DeepSeek V3.2",
    source="encoding_dsv32.py of deepseek-ai/DeepSeek-V3.2 (2025-12), as vLLM 0.33 and llama.cpp have it",
    other_sections=(OTHER,),
    tools=ToolListMarkup(("<functions>\n", "\n</functions>"), ("{", "}")),
    result=ToolResultMarkup("<function_results>\n<result>", "</result>\n</function_results>"),
    aliases=("deepseekv32",),
)
