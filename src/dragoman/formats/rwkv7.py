"""RWKV-7: a JSON call in a code fence behind a heading.

    **Tool Call:**
    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Thoughts stand in `<think>…</think>`.

Source: vLLM's parser rwkv7, an open change (2026), as its tests have it; the template was not seen.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

OPEN, OPEN_CRLF, CLOSE = "**Tool Call:**\n```json", "**Tool Call:**\r\n```json", "```"

FORMAT: Final = json_calls_format(
    name="rwkv7",
    model_families="RWKV-7",
    source="vLLM's parser rwkv7, an open change (2026); the template was not seen",
    blocks={OPEN: CLOSE, OPEN_CRLF: CLOSE},
    call=(f"{OPEN}\n", f"\n{CLOSE}"),
    separator="\n\n",
)
