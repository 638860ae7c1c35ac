"""Apertus: a JSON array of calls between tokens, where the tool's name is the key of its arguments.

    <|inner_prefix|>Look it up.<|inner_suffix|><|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>

Reasoning is in `<|inner_prefix|>…<|inner_suffix|>`; the model also calls from within it. Also accepted: a single object
without an array, arguments as a JSON string, a missing closing token.

Source: chat template of swiss-ai/Apertus-8B-Instruct-2509 (2025-09), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys

OPEN, CLOSE = "<|tools_prefix|>", "<|tools_suffix|>"

FORMAT: Final = json_calls_format(
    name="apertus",
    model_families="Apertus",
    source="chat template of swiss-ai/Apertus-8B-Instruct-2509 (2025-09), as llama.cpp has it (2026-10)",
    blocks={OPEN: CLOSE},
    keys=JsonCallKeys(name_is_key=True),
    section=(f"{OPEN}[", f"]{CLOSE}"),
    reasoning_tags={"<|inner_prefix|>": "<|inner_suffix|>"},
)
