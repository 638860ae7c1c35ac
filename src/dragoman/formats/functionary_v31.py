"""Functionary v3.1: a function's name in its tag, the arguments between.

    <function=get_weather>{"city": "Paris"}</function>

Written by functionary-small-v3.1 and by Llama 3.1 when prompted with custom tools; several calls are several such tags
in sequence. Also accepted: a missing closing tag.

Source: chat template of meetkai/functionary-medium-v3.1 (2024-08), as in llama.cpp (2026-10); "Llama 3.1 model card and
prompt formats", custom tool calling (2024-07).
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, CLOSE = "<function=", "</function>"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads `name>`."""
    field = yield from s.field(markers(">"))
    return CallHead(field[0].strip()) if field else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}>", CLOSE


MARKUP: Final = Markup(calls={OPEN: NameThenJson(head, closers=(CLOSE,)).read}, reasoning_tags={}, closers=(CLOSE,))

FORMAT: Final = json_format(
    name="functionary_v31",
    model_families="functionary v3.1; Llama 3.1 with custom tools",
    source="chat template of functionary-medium-v3.1 (2024-08); Llama 3.1 prompt formats (2024-07)",
    read=MARKUP,
    calls={},  # qwen3_xml reads them too
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN, CLOSE),
    separator="",
    aliases=("functionary_v3_1",),
)
