"""Names of the JSON errors that are repaired in tool calls (`text/tolerant_json.py`, `text/unwrap_arguments.py`).

docs/deviations.md defines each one and its limits. Where they were seen:

- quotes: Qwen3-Coder, `[{'content': 'Add'}]` (opencode 1264, 2025-07); MiniMax M2.1 on mlx (mlx-openai-server 124)
- inner_quotes: Gemma 4, Qwen3 writing code (continue 12738, 2026-06; ai-sdk-tool-call-middleware 301, 2026-04)
- escapes: the escape of a line break outside of a string: Qwen3.5-Flash (OpenHands software-agent-sdk 2488, 2026-03)
- commas, bare_keys, literals, comments: json_repair 36, 210 and 49 (2024-04 to 2026-08), CodeRouter 40 (2026-07)
- unclosed_object: Qwen2.5-Coder 1.5B, `{"location": "Paris"` before `</tool_call>` (2026-11)
- doubled: Granite 4 (vLLM 54964, 2026-09), quarkus-langchain4j 2642 (2026-06)
"""

import re
from collections.abc import Collection
from typing import Final

from dragoman.core.events import Notice

REPAIRS: Final = (
    "controls",
    "quotes",
    "inner_quotes",
    "bare_keys",
    "commas",
    "literals",
    "escapes",
    "comments",
    "doubled",
    "fences",
    "unclosed_object",
)
"""All repairs of the text of arguments, by name."""
ALL_REPAIRS: Final = frozenset(REPAIRS)

MEMBER: Final = re.compile(r',[ \t\n\r]*"[^"\\\x00-\x1f\ud800-\udfff]*+"[ \t\n\r]*:[ \t\n\r]*')
"""The text between two values of an object. It nearly always matches at once if the whole reply is available."""
FOREIGN_ESCAPE: Final = re.compile(r"\\(?:[avx0-7N\n\r]|U[0-9a-fA-F])")
"""Escapes of other languages that JSON does not have. Their meaning is ambiguous."""
NAME_START: Final = re.compile(r"[\w.]")
"""After a literal backslash, the start of a path segment. Other backslashes of that path may look like escapes."""
INNER_QUOTE_NEXT: Final = "$%(*+-.@_{~"
"""Characters, besides letters and digits, that may follow an unescaped quote inside a string. A quote before any other
character may also end the string, for example if the model forgot the brace: `{"city": "Paris"</tool_call>`."""
COMMENT: Final = re.compile(r"//|/\*|#(?=[ \t])")


def repair_warning(repairs: Collection[str], raw: str) -> Notice:
    """Returns the warning for a call with these repairs; `raw` is the text as the model wrote it."""
    return Notice("json_repaired", f"repaired the JSON of a call: {', '.join(repairs)}", raw)
