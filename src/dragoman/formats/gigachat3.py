"""GigaChat 3: a call is a message with the role `function call`, or follows a token.

    Let me look.<|message_sep|>

    function call<|role_sep|>
    {"name": "get_weather", "arguments": {"city": "Paris"}}<|message_sep|>

GigaChat 3 writes this; GigaChat 3.1 writes `Let me look.<|function_call|>{"name": …}`. A reply has one call. Also
accepted: several calls, no message separator before the role or after the object.

Source: chat templates of ai-sage/GigaChat3-10B-A1.8B (2025-11) and GigaChat3.1-10B-A1.8B (2026), as in llama.cpp
(2026-10). They write only the first of several calls.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import json_calls_format

SEPARATOR, ROLE, TOKEN = "<|message_sep|>", "function call<|role_sep|>", "<|function_call|>"
OPEN: Final = f"{SEPARATOR}\n\n{ROLE}"
OPEN_CRLF: Final = f"{SEPARATOR}\r\n\r\n{ROLE}"

FORMAT: Final = json_calls_format(
    name="gigachat3",
    model_families="GigaChat 3, 3.1",
    source="chat templates of GigaChat 3 (2025-11) and 3.1 (2026), as llama.cpp has them (2026-10)",
    blocks=dict.fromkeys((OPEN, OPEN_CRLF, ROLE, TOKEN), SEPARATOR),
    may_stay_open=True,
    call=(f"{OPEN}\n", SEPARATOR),
    separator="",
    reasoning_tags={},
)
