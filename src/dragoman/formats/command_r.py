"""Command R of 2024: a JSON array of calls in a code fence, after the word `Action`.

    Action: ```json
    [
        {
            "tool_name": "get_weather",
            "parameters": {"city": "Paris"}
        }
    ]```

Written by Command R and R+ of 2024; later versions use control tokens. Where no tool fits, the model calls
`directly_answer`, which stays text, like any tool that is not offered. Also accepted: no space after the colon, the
fence on the next line, `name` and `arguments`, a single object without an array.

Source: tool use template of CohereLabs/c4ai-command-r-plus (2024-04), as in llama.cpp (2026-10). The template writes
past calls over several lines as above, with `Action:` on its own line; Dragoman writes each in one line.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys
from dragoman.parsing.tool_markup import ToolResultMarkup
from dragoman.parsing.untagged.code_fence import FENCE

OPENERS: Final = tuple(f"Action:{space}{FENCE}json" for space in (" ", "", "\n"))

FORMAT: Final = json_calls_format(
    name="command_r",
    model_families="Command R and R+ of 2024",
    source="tool use template of CohereLabs/c4ai-command-r-plus (2024-04), as llama.cpp has it (2026-10)",
    aliases=("command_r_plus",),
    blocks=dict.fromkeys(OPENERS, FENCE),
    keys=JsonCallKeys(("tool_name", "name"), ("parameters", "arguments")),
    section=(f"{OPENERS[0]}\n[\n    ", f"\n]{FENCE}"),
    separator=",\n    ",
    reasoning_tags={},
    result=ToolResultMarkup("<results>\n", "</results>"),
)
