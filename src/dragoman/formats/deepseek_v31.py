"""DeepSeek V3.1: a name, a separator, the arguments.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

(One line; DeepSeek V3.1 and Terminus, Cogito v2.) The bars are U+FF5C, the lines U+2581; there is no text between
calls. Also accepted: calls outside a section, a call in the section without its opener.

Source: chat template of deepseek-ai/DeepSeek-V3.1 (2025-08), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.parsing.tool_markup import ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner, markers

SECTION: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads `name<｜tool▁sep｜>`."""
    field = yield from s.field(markers(SEPARATOR))
    return CallHead(field[0].strip()) if field else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}{SEPARATOR}", CLOSE


MARKUP: Final = Markup(
    calls={OPEN: NameThenJson(head, closers=(CLOSE,)).read},
    reasoning_tags={"<think>": "</think>"},
    section=SECTION,
    name_end=SEPARATOR,
    closers=(CLOSE,),
)

FORMAT: Final = json_format(
    name="deepseek_v31",
    model_families="DeepSeek V3.1 and Terminus, Cogito v2",
    source="chat template of deepseek-ai/DeepSeek-V3.1 (2025-08), as llama.cpp has it (2026-10)",
    read=MARKUP,
    calls={},  # deepseek_v3 reads them too
    call_wrapper=call_wrapper,
    opener=SECTION[0],
    markers=(*SECTION, OPEN, SEPARATOR, CLOSE, "<think>", "</think>"),
    section=SECTION,
    separator="",
    result=ToolResultMarkup("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    aliases=("deepseekv31", "cogito"),
)
