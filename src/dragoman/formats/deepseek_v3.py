"""DeepSeek V3 and R1: each call contains its type, the function name, and its arguments in a code fence.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Paris"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Written by DeepSeek V3, V3-0324, R1, R1-0528. The bars are U+FF5C, the lines U+2581; calls are separated by a line
break. A fence within a string of the arguments does not end it. Also accepted: calls outside a section, no fence or one
without `json`, the name on the line of the fence.

Source: chat template of DeepSeek-R1-Distill-Qwen-32B (2025-01), as in llama.cpp (2026-10); vLLM's
tool_chat_template_deepseekv3 and deepseekr1 write the same.
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.parsing.tool_markup import ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner, markers

SECTION: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE: Final = ("```json", "```")


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads `function<｜tool▁sep｜>name` and the opening fence."""
    kind = yield from s.field(markers(SEPARATOR))
    if not kind:
        return None
    field = yield from s.field(markers("\n", FENCE[1], "{"))
    if not field:
        return None
    s.pos -= len(field[1])
    yield from s.skip_space()
    yield from s.literal(*FENCE)
    return CallHead(field[0].strip() or kind[0].strip())  # V3.1 writes the name where V3 writes the type


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}function{SEPARATOR}{name}\n{FENCE[0]}\n", f"\n{FENCE[1]}{CLOSE}"


MARKUP: Final = Markup(
    calls={OPEN: NameThenJson(head, closers=(CLOSE,), fence=("", FENCE[1])).read},
    reasoning_tags={"<think>": "</think>"},
    section=SECTION,
    closers=(CLOSE,),
)

FORMAT: Final = json_format(
    name="deepseek_v3",
    model_families="DeepSeek V3, V3-0324, R1, R1-0528",
    source="chat template of DeepSeek-R1-Distill-Qwen-32B (2025-01), as llama.cpp has it (2026-10)",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=SECTION[0],
    markers=(*SECTION, OPEN, SEPARATOR, CLOSE, "<think>", "</think>"),
    section=SECTION,
    result=ToolResultMarkup(
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>", "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    ),
    aliases=("deepseekv3", "deepseek_r1"),
)
