"""Apriel: a JSON array of calls between tags, after reasoning steps.

    Here are my reasoning steps:
    The user asks for Paris.
    [BEGIN FINAL RESPONSE]
    <tool_calls>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</tool_calls>

Written by Apriel 1.5 and 1.6 Thinker; the prompt of 1.6 ends with the first line. The model is not asked for ids, but
its past calls are shown with theirs, `"id": "call_1"` after the arguments. Also accepted: a call from within the steps,
`[END FINAL RESPONSE]` after the answer (1.5), `<thinking>…</thinking>`, objects without an array, a missing closing
tag.

Source: chat templates of Apriel-1.5-15b-Thinker (2025-09; unsloth's) and Apriel-1.6-15b-Thinker (2025-12; corrected by
llama.cpp), as in llama.cpp (2026-10). ServiceNow's own files were not available. They list tools as Python prints them;
Dragoman writes JSON.
"""

import json
from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"


def write_id(id: str) -> tuple[str, str]:
    """Returns the JSON around the name and arguments: the id, if there is one, follows the arguments."""
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
