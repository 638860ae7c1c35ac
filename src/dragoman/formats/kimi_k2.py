"""Kimi K2: calls in a section, each starting with an id that contains the name.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
    <|tool_call_end|><|tool_calls_section_end|>

(One line; K2, K2-Thinking, K2.5 to K2.7.) The number counts calls over the whole conversation; the model expects its
ids unchanged. Also accepted: white space around the id, no `functions.`, `_` or `!` before the number, arguments in a
JSON string, calls outside a section.

Source: chat templates of moonshotai/Kimi-K2-Instruct (2025-07) and Kimi-K2-Thinking (2025-11), as in llama.cpp
(2026-10).
"""

import re
from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers

SECTION: Final = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
OPEN, ARGUMENTS, CLOSE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_HEAD = re.compile(r"\s*((?:functions[._])?(.+?)(?:[:_!]\d+)?)\s*", re.S)


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads the id, which contains the name."""
    field = yield from s.field(markers(ARGUMENTS))
    match = field and _HEAD.fullmatch(field[0])
    return CallHead(match[2], match[1]) if match else None


def call_wrapper(name: str, id: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    own = id if id.startswith("functions.") else f"functions.{name}:0"
    return f"{OPEN}{own}{ARGUMENTS}", CLOSE


MARKUP: Final = Markup(
    calls={OPEN: NameThenJson(head, closers=(CLOSE,)).read},
    reasoning_tags={"<think>": "</think>"},
    section=SECTION,
    closers=(CLOSE,),
    keep_whitespace=True,
)

FORMAT: Final = json_format(
    name="kimi_k2",
    model_families="Kimi K2, K2-Thinking, K2.5 to K2.7",
    source="chat templates of Kimi-K2-Instruct and Kimi-K2-Thinking (2025), as llama.cpp has them (2026-10)",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=SECTION[0],
    markers=(*SECTION, OPEN, ARGUMENTS, CLOSE, "<think>", "</think>"),
    section=SECTION,
    separator="",
    id_prefix="functions.{name}:",
)
