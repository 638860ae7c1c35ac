"""Hunyuan A13B: a JSON array of calls between tags, the answer between other tags.

    <think>
    The user asks for Paris.
    </think>
    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

The answer, with its calls, may be in `<answer>…</answer>`. Also accepted: objects without an array, a missing closing
tag.

Source: tool_chat_template_hunyuan_a13b.jinja of vLLM (2025-07); Tencent's own template was not available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"

FORMAT: Final = json_calls_format(
    name="hunyuan_a13b",
    model_families="Hunyuan A13B",
    source="tool_chat_template_hunyuan_a13b.jinja of vLLM (2025-07)",
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}[", f"]{CLOSE}"),
    answer_wrappers={"<answer>": "</answer>"},
    tools=ToolListMarkup(("[", "]"), separator=", "),
    result=ToolResultMarkup("<tool_response>", "</tool_response>"),
)
