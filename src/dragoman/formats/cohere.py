"""Cohere Command R7B and later: a JSON array of numbered calls between tokens.

    <|START_THINKING|>I will look it up.<|END_THINKING|><|START_ACTION|>[
        {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}
    ]<|END_ACTION|>

The answer is in `<|START_RESPONSE|>…<|END_RESPONSE|>`, in later versions in `<|START_TEXT|>…<|END_TEXT|>`. Ids count
the calls of the conversation. Citations (`<co>…</co: 0:[1]>`) are kept as the model wrote them. Also accepted: `name`
and `arguments`, a single object without an array, a call directly after unclosed reasoning.

Source: cohere-melody 0.15.3, Cohere's own package: render_cmd3 and render_cmd4 (2026-10); chat template of
CohereLabs/c4ai-command-r7b-12-2024, as in llama.cpp.
"""

import json
from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

OPEN, CLOSE = "<|START_ACTION|>", "<|END_ACTION|>"

RESULT: Final = ToolResultMarkup(
    '<|START_TOOL_RESULT|>[\n    {\n        "tool_call_id": "{id}",\n'
    '        "results": {\n            "0": {"content": ',
    '}\n        },\n        "is_error": {error}\n    }\n]<|END_TOOL_RESULT|>',
    error=("null", "true"),
    quoted=True,
)


def write_id(id: str) -> tuple[str, str]:
    """Returns the JSON around the name and arguments: the id precedes the name."""
    return f'"tool_call_id": {json.dumps(id or "0")}, ', ""


FORMAT: Final = json_calls_format(
    name="cohere",
    model_families="Command R7B, Command A and later",
    source="render_cmd3 and render_cmd4 of cohere-melody 0.15.3 (2026-10)",
    aliases=("cohere_command3", "cohere_command4", "command_r7b", "command_a"),
    blocks={OPEN: CLOSE},
    keys=JsonCallKeys(("tool_name", "name"), ("parameters", "arguments"), ("tool_call_id", "id")),
    section=(f"{OPEN}[\n    ", f"\n]{CLOSE}"),
    separator=",\n    ",
    write_id=write_id,
    reasoning_tags={"<|START_THINKING|>": "<|END_THINKING|>"},
    answer_wrappers={"<|START_RESPONSE|>": "<|END_RESPONSE|>", "<|START_TEXT|>": "<|END_TEXT|>"},
    id_prefix="",
    tools=ToolListMarkup(("```json\n[\n    ", "\n]\n```"), ("{", ', "responses": null}'), ",\n    "),
    result=RESULT,
)
