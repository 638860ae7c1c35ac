"""Apriel: a JSON array of calls between tags, behind reasoning steps.

    Here are my reasoning steps:
    The user asks for Paris.
    [BEGIN FINAL RESPONSE]
    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Written by Apriel 1.5 and 1.6 Thinker; the prompt of 1.6 ends with the first line. The model is not asked for ids, but
shown its past calls with theirs, `"id": "call_1"` behind the arguments. Seen and taken: a call from within the steps,
`[END FINAL RESPONSE]` behind the answer (1.5), `<thinking>…</thinking>`, objects without an array, a missing closing
tag.

Source: chat templates of Apriel-1.5-15b-Thinker (2025-09; unsloth's) and Apriel-1.6-15b-Thinker (2025-12; mended by
llama.cpp), as llama.cpp has them (2026-10). ServiceNow's own files were not seen. They list tools as
Python prints them; here they are JSON.
"""

import json
from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"


def write_id(id: str) -> tuple[str, str]:
    """Behind the arguments, where there is one."""
    return "", f', "id": {json.dumps(id, ensure_ascii=False)}' if id else ""


FORMAT: Final = json_calls_format(
    name="apriel",
    model_families="Apriel 1.5 and 1.6 Thinker",
    source="chat templates of Apriel 1.5 (2025-09) and 1.6 Thinker (2025-12), as llama.cpp has them (2026-10)",
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}[", f"]{CLOSE}"),
    write_id=write_id,
    reasoning_tags={"Here are my reasoning steps:": "[BEGIN FINAL RESPONSE]", "<thinking>": "</thinking>"},
    ignored_wrappers=("[END FINAL RESPONSE]",),
    result_markers=("<|tool_result|>", "<|begin_tool_result|>"),
    tools=ToolListMarkup(("<available_tools>\n", "\n</available_tools>")),
)
