"""RWKV-7: a JSON call in a code fence after a heading.

    **Tool Call:**
    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Reasoning is in `<think>…</think>`.

Source: vLLM's parser rwkv7, an open change (2026), with its tests; the template was not available.
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
