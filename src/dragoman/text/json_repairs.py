"""The slips in a call's JSON that are mended, by name (`text/tolerant_json.py`, `text/unwrap_arguments.py`).

What each is, and what it is not, docs/liberties.md says. Where they were seen:

- quotes: Qwen3-Coder, `[{'content': 'Add'}]` (opencode 1264, 2025-07); MiniMax M2.1 behind mlx (mlx-openai-server 124)
- inner_quotes: Gemma 4, Qwen3 writing code (continue 12738, 2026-06; ai-sdk-tool-call-middleware 301, 2026-04)
- escapes: a line break's escape outside of a string: Qwen3.5-Flash (OpenHands software-agent-sdk 2488, 2026-03)
- commas, bare_keys, literals, comments: json_repair 36, 210 and 49 (2024-04 to 2026-08), CodeRouter 40 (2026-07)
- unclosed_object: Qwen2.5-Coder 1.5B, `{"location": "Paris"` before `</tool_call>` (2026-11)
- doubled: Granite 4 (vLLM 54964, 2026-09), quarkus-langchain4j 2642 (2026-06)
"""

import re
from collections.abc import Collection
from typing import Final

from dragoman.core.events import Notice

SLIPS: Final = (
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
"""The names of all that is mended in the text of arguments."""
ALL_SLIPS: Final = frozenset(SLIPS)

MEMBER: Final = re.compile(r',[ \t\n\r]*"[^"\\\x00-\x1f\ud800-\udfff]*+"[ \t\n\r]*:[ \t\n\r]*')
"""What stands between two values of an object: nearly always all at once, where the text comes whole."""
MEANS_MORE: Final = re.compile(r"\\(?:[avx0-7N\n\r]|U[0-9a-fA-F])")
"""Escapes that other languages have, and JSON has not: what is meant cannot be told."""
NAMED: Final = re.compile(r"[\w.]")
"""Behind a backslash that stands for itself: as in a path, whose other backslashes may look like escapes."""
QUOTED_FIRST: Final = "$%(*+-.@_{~"
"""What quoted words may begin with, beside letters and digits. A quote before anything else may as well end the string,
as where a model has forgotten the brace: `{"city": "Paris"</tool_call>`."""
COMMENT: Final = re.compile(r"//|/\*|#(?=[ \t])")


def told(slips: Collection[str], raw: str) -> Notice:
    """What is to be said of a call that had these."""
    return Notice("mended_json", f"mended the JSON of a call: {', '.join(slips)}", raw)
