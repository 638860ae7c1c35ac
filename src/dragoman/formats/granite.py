"""Granite 3: a JSON array of calls after a marker, without a closing marker.

    <|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Prompts ask for the token `<|tool_call|>`; Granite 3.1 and later also write the text `<tool_call>`; the array has no
closing marker. Reasoning is in `<think>…</think>` and the answer in `<response>…</response>` (3.3), or between the
sentences "Here is my thought process:" and "Here is my response:" (3.2). Also accepted: `</tool_call>` after the array,
a single object without an array, Python calls of offered tools at the start of the reply, one per line:
`get_weather(city="Paris")`.

Source: chat template of ibm-granite/granite-3.3-2b-instruct (2025-04), as in llama.cpp (2026-10), which asks for the
token and "a JSON list of tools used" and shows no past calls; the `granite` parser of vLLM 0.33 for the text
`<tool_call>`, and an open change of vLLM for the Python calls (2026).
"""

from typing import Final

from dragoman.parsing.format import THINK
from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.python_call import BARE_CALLS

OPEN, OPEN_3_0, CLOSE = "<tool_call>", "<|tool_call|>", "</tool_call>"
SENTENCES: Final = {
    "Here is my thought process:": "Here is my response:",
    "Here's my thought process:": "Here's my response:",
}

FORMAT: Final = json_calls_format(
    name="granite",
    model_families="Granite 3.0 to 3.3",
    source="chat template of granite-3.3-2b-instruct (2025-04); vLLM 0.33's parser granite (2026-10)",
    aliases=("granite3", "granite_3"),
    blocks={OPEN_3_0: "", OPEN: CLOSE},
    may_stay_open=True,
    section=(f"{OPEN_3_0}[", "]"),
    reasoning_tags=THINK | SENTENCES,
    answer_wrappers={"<response>": "</response>"},
    result_markers=("<tool_response>", "<|tool_response|>"),
    untagged_calls=BARE_CALLS,
)
