"""Jamba: a JSON array of calls between tags.

    <tool_calls>[
      {"name": "get_weather", "arguments": {"city": "Paris"}}
    ]</tool_calls>

Written by Jamba 1.5 and later. Also accepted: objects without an array, a missing closing tag.

Source: the `jamba` parser of vLLM 0.33 (2026-10); the templates of ai21labs/AI21-Jamba-1.5-Mini (2024-08) and later
were not available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, CLOSE = "<tool_calls>", "</tool_calls>"

FORMAT: Final = json_calls_format(
    name="jamba",
    model_families="Jamba 1.5 and later",
    source="as vLLM 0.33's parser jamba reads it (2026-10); the template was not seen",
    aliases=("jamba1_5",),
    blocks={OPEN: CLOSE},
    section=(f"{OPEN}[\n  ", f"\n]{CLOSE}"),
    separator=",\n  ",
)
