"""The slips in a call's JSON that are mended, by name (`core/mended_json.py`, `core/wrapped.py`).

What each is, and what it is not, docs/liberties.md says. Where they were seen:

- quotes: Qwen3-Coder, `[{'content': 'Add'}]` (opencode 1264, 2025-07); MiniMax M2.1 behind mlx (mlx-openai-server 124)
- inner_quotes: Gemma 4, Qwen3 writing code (continue 12738, 2026-06; ai-sdk-tool-call-middleware 301, 2026-04)
- escapes: a line break's escape outside of a string: Qwen3.5-Flash (OpenHands software-agent-sdk 2488, 2026-03)
- commas, bare_keys, literals, comments: json_repair 36, 210 and 49 (2024-04 to 2026-08), CodeRouter 40 (2026-07)
- doubled: Granite 4 (vLLM 54964, 2026-09), quarkus-langchain4j 2642 (2026-06)
"""

from collections.abc import Collection
from typing import Final

from dragoman.core.events import Warning

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
)
"""The names of all that is mended in the text of arguments."""
ALL_SLIPS: Final = frozenset(SLIPS)


def told(slips: Collection[str], raw: str) -> Warning:
    """What is to be said of a call that had these."""
    return Warning("mended_json", f"mended the JSON of a call: {', '.join(slips)}", raw)
