"""DeepSeek V4.1: DSML with a space after the token and a shorter section name.

    <｜DSML｜ calls>
    <｜DSML｜ invoke name="get_weather">
    <｜DSML｜ parameter name="city" string="true">Paris</｜DSML｜ parameter>
    <｜DSML｜ parameter name="days" string="false">3</｜DSML｜ parameter>
    </｜DSML｜ invoke>
    </｜DSML｜ calls>

Strings are raw, including trailing spaces; other values are JSON. Without parameters, the call contains an empty line.
Also accepted: a self-closing call, one JSON object instead of the parameters, calls outside a section.

Source: the reference encoder of DeepSeek-V4.1 (2026-08), as in vLLM 0.33, tokenizers/deepseek_v41_encoding.py.
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import dsml_tags, invoke_format
from dragoman.parsing.tool_markup import ToolResultMarkup

TAGS: Final = dsml_tags("｜DSML｜ ", "calls")

FORMAT: Final = invoke_format(
    TAGS,
    name="deepseek_v41",
    model_families="DeepSeek V4.1",
    source="reference encoder of DeepSeek-V4.1 (2026-08), as vLLM 0.33 has it",
    result=ToolResultMarkup("<tool_result>", "</tool_result>"),
    aliases=("deepseekv41",),
)
