"""Granite 20B function calling: each call after a marker, without a closing marker.

    <function_call> {"name": "get_weather", "arguments": {"city": "Paris"}}

Several calls follow one another without a separator. Where no tool fits, the model calls `no_function`, which stays
text, like any tool that is not offered. Also accepted: several objects after one marker, a JSON array of them.

Source: examples/tool_chat_template_granite_20b_fc.jinja of vLLM (2024-10); IBM's own template was not available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup

OPEN: Final = "<function_call>"

FORMAT: Final = json_calls_format(
    name="granite_20b_fc",
    model_families="Granite 20B functioncalling",
    source="tool_chat_template_granite_20b_fc.jinja of vLLM (2024-10)",
    aliases=("granite-20b-fc",),
    blocks={OPEN: ""},
    call=(f"{OPEN} ", ""),
    separator="",
    reasoning_tags={},
    result_markers=("<function_response>",),
    tools=ToolListMarkup(("<|function_call_library|>\n", ""), ("{", "}")),
)
