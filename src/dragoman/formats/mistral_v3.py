"""Mistral v2 to v7: a JSON array of calls after one control token.

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a1B2c3D4e"}]

Written by Mistral 7B v0.3, Mixtral 8x22B, Nemo, Large 2407 and 2411, Small 3 and other models of those tokenizers;
later models write names outside the JSON. The array has no closing marker. The id has nine letters or digits; models
usually omit it. Also accepted: keys in any order, no space after the token, a single object without an array.

Source: mistral-common 1.13.1, tokenizers v3 and v7, whose pieces decode with the space (2026-11). Those of Mistral
Nemo, tekken, have no space after the token, nor has its chat template in llama.cpp (2024-07).
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

OPEN: Final = "[TOOL_CALLS]"
ID_CHARS: Final = 9


def write_id(id: str) -> tuple[str, str]:
    """Returns the JSON after the arguments: the id. Templates reject ids other than nine letters or digits."""
    is_valid = len(id) == ID_CHARS and id.isascii() and id.isalnum()
    return "", f', "id": "{id}"' if is_valid else ""


FORMAT: Final = json_calls_format(
    name="mistral_v3",
    model_families="Mistral 7B v0.3, Mixtral 8x22B, Mistral Nemo, Mistral Large 2407 and 2411, Mistral Small 3",
    source="tokenizers v3 and v7 of mistral-common 1.13.1 (2026-11)",
    aliases=("mistral_v2", "mistral_v7"),
    blocks={OPEN: ""},
    section=(f"{OPEN} [", "]"),
    write_id=write_id,
    keys=JsonCallKeys(late_id=False),
    tools=ToolListMarkup(("[AVAILABLE_TOOLS] [", "][/AVAILABLE_TOOLS]"), separator=", "),
    result=ToolResultMarkup('[TOOL_RESULTS] {"content": ', ', "call_id": "{id}"}[/TOOL_RESULTS]', quoted=True),
)
