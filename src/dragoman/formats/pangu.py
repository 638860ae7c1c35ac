"""Pangu Embedded: a JSON array of calls between unused tokens of the vocabulary.

    [unused11][{"name": "get_weather", "arguments": {"city": "Paris"}}][unused12]

Reasoning is in `[unused16]…[unused17]`. Served under another template, openPangu writes `<|tool_call_start|>` and the
same array, which `lfm2` reads.

Source: model card of openPangu-Embedded-7B, FreedomIntelligence's copy (2025-08), for the reasoning; the prompt of
openPangu's DeepDiver, https://ai.gitcode.com/ascend-tribe/openPangu-Embedded-7B-DeepDiver (2025-09), for the calls. The
template was not available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, CLOSE = "[unused11]", "[unused12]"

FORMAT: Final = json_calls_format(
    name="pangu",
    model_families="openPangu Embedded",
    source="model card of openPangu-Embedded-7B (2025-08); prompts of openPangu DeepDiver (2025-09)",
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}[", f"]{CLOSE}"),
    reasoning_tags={"[unused16]": "[unused17]"},
    aliases=("openpangu",),
)
