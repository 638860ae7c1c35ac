"""InternLM: each call between the tokens of an action.

    <|action_start|><|plugin|>
    {"name": "get_weather", "parameters": {"city": "Paris"}}<|action_end|>

Written by InternLM2.5, InternLM3 and Intern-S1, the last two with reasoning in `<think>…</think>`; there is no text
between calls. Also accepted: white space between the two tokens, which decoders insert; `arguments` for `parameters`.
An action of the interpreter (`<|interpreter|>`) is code; it is read as text.

Source: chat/chat_format.md of InternLM/InternLM (2024); several calls as in lmdeploy/model.py of InternLM/lmdeploy
(2025). The template of Intern-S1 was not available; the parsers of lmdeploy and SGLang read this.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys

OPEN, CLOSE = "<|action_start|><|plugin|>", "<|action_end|>"
SPACED: Final = tuple(f"<|action_start|>{space}<|plugin|>" for space in (" ", "\n"))

FORMAT: Final = json_calls_format(
    name="internlm",
    model_families="InternLM2.5, InternLM3, Intern-S1",
    source="chat/chat_format.md of InternLM/InternLM (2024); lmdeploy/model.py of InternLM/lmdeploy (2025)",
    aliases=("internlm2", "interns1", "intern-s1"),
    blocks=dict.fromkeys((OPEN, *SPACED), CLOSE),
    keys=JsonCallKeys(arguments=("parameters", "arguments")),
    call=(f"{OPEN}\n", CLOSE),
    separator="",
)
