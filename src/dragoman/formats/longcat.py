"""LongCat: a JSON object between its own tags.

    <longcat_tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </longcat_tool_call>

Each call has its own block. Reasoning is in `<longcat_think>…</longcat_think>`. Also accepted: no line breaks, several
objects in one block, a JSON array of them, a missing closing tag.

Source: the `longcat` parser of vLLM 0.33 (2026-10); the templates of meituan-longcat/LongCat-Flash-Chat and -Thinking
(2025-09) were not available.
"""

from typing import Final

from dragoman.parsing.format import THINK
from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, CLOSE = "<longcat_tool_call>", "</longcat_tool_call>"
FORMAT: Final = json_calls_format(
    name="longcat",
    model_families="LongCat Flash",
    source="as vLLM 0.33's parser longcat reads it (2026-10); the template was not seen",
    blocks={OPEN: CLOSE},
    call=(f"{OPEN}\n", f"\n{CLOSE}"),
    separator="\n",
    reasoning_tags={"<longcat_think>": "</longcat_think>"} | THINK,
)
