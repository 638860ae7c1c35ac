"""ERNIE 4.5 and X1.1: a JSON object between tags, and the answer between other tags.

    <think>
    The user asks for Paris.
    </think>

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

Without a call, the answer is in `<response>…</response>`. Each call has its own block. Also accepted: several objects
in one block, a JSON array of them, a missing closing tag.

Source: the `ernie45` parser of vLLM 0.33 (2026-10); the template of baidu/ERNIE-4.5-21B-A3B-Thinking (2025-09) was not
available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FORMAT: Final = json_calls_format(
    name="ernie45",
    model_families="ERNIE 4.5 Thinking, X1.1",
    source="as vLLM 0.33's parser ernie45 reads it (2026-10); the template was not seen",
    aliases=("ernie", "ernie_x1"),
    blocks={OPEN: CLOSE},
    call=(f"{OPEN}\n", f"\n{CLOSE}"),
    separator="\n",
    answer_wrappers={"<response>": "</response>"},
    result_markers=("<tool_output>",),
)
