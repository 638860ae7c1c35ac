"""Nemotron Nano v2: a JSON array of calls between tags.

    <TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}]</TOOLCALL>

Also written by Llama-3.3-Nemotron-Super v1.5. Reasoning is in `<think>…</think>`. Also accepted: arguments as a JSON
string, as the template shows them; a single object without an array; a missing closing tag.

Source: chat template of nvidia/NVIDIA-Nemotron-Nano-9B-v2 (2025-08), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

OPEN, CLOSE = "<TOOLCALL>", "</TOOLCALL>"

FORMAT: Final = json_calls_format(
    name="nemotron_v2",
    model_families="Nemotron Nano v2, Llama-3.3-Nemotron-Super v1.5",
    source="chat template of nvidia/NVIDIA-Nemotron-Nano-9B-v2 (2025-08), as llama.cpp has it (2026-10)",
    aliases=("nemotron_json", "nemotron_nano_v2"),
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}[", f"]{CLOSE}"),
    tools=ToolListMarkup(("<AVAILABLE_TOOLS>[", "]</AVAILABLE_TOOLS>"), ("{", "}"), ", "),
    result=ToolResultMarkup("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
)
