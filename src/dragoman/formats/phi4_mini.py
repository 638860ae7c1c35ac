"""Phi-4-mini: a JSON array of calls after the word `functools`.

    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Firefunction v2 writes the same. The array has no closing marker. Also accepted: the tokens of the model's own template,
`<|tool_call|>[…]<|/tool_call|>`.

Source: chat template of fireworks-ai/llama-3-firefunction-v2 (2024-06), as in llama.cpp (2026-10);
tool_chat_template_phi4_mini.jinja of vLLM asks Phi-4-mini for this. Microsoft's own template was not available;
onnxruntime-extensions writes the tools of Phi-4 in `<|tool|>[…]<|/tool|>` (2025).
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.tool_markup import ToolListMarkup

OPEN: Final = "functools["

FORMAT: Final = json_calls_format(
    name="phi4_mini",
    model_families="Phi-4-mini, Firefunction v2",
    source="chat template of firefunction-v2 (2024-06); tool_chat_template_phi4_mini.jinja of vLLM (2025)",
    aliases=("phi4_mini_json", "phi4mini", "functools", "firefunction_v2"),
    blocks={OPEN: "", "<|tool_call|>": "<|/tool_call|>"},
    section=(OPEN, "]"),
    reasoning_tags={},
    result_markers=("<|tool_response|>",),
    tools=ToolListMarkup(("<|tool|>[", "]<|/tool|>"), ("{", "}"), ", "),
)
