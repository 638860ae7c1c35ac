"""MiniMax-M1: one call per line between tags.

    <tool_calls>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    {"name": "ping", "arguments": {}}
    </tool_calls>

Reasoning is in `<think>…</think>`. Also accepted: a JSON array, commas between the calls, several on one line.

Source: chat template of MiniMaxAI/MiniMax-M1 (2025-06), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"

FORMAT: Final = json_calls_format(
    name="minimax_m1",
    model_families="MiniMax-M1",
    source="chat template of MiniMaxAI/MiniMax-M1 (2025-06), as llama.cpp has it (2026-10)",
    aliases=("minimax",),
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}\n", f"\n{CLOSE}"),
    separator="\n",
)
