"""Mistral v11 and v13: a name after `[TOOL_CALLS]`, arguments after `[ARGS]`, without a closing marker.

    [THINK]Look it up.[/THINK]Let me see.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

Written by Mistral Small 3.2, Magistral, Devstral, Ministral 3, Medium 3 and later; several calls follow one another in
this form. v11 shows past calls with their ids, `get_weather[CALL_ID]a1B2c3D4e[ARGS]`, v13 without; Dragoman writes
none. Magistral 2506 writes its reasoning in `<think>`. Also accepted: no `[ARGS]`, white space around the name. (The
JSON array of v2 to v7 is another format.)

Source: mistral-common 1.13.1, tokens/tokenizers/instruct.py: InstructTokenizerV11 and V13 (2026-11); chat templates of
Devstral-Small-2507 and Ministral-3-14B-Reasoning-2512, as in llama.cpp (2026-10).
"""

import re
from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
REASONING_TAGS: Final = {"[THINK]": "[/THINK]", "<think>": "</think>"}
_NAME = re.compile(r"[\w.-]+")


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads `name[CALL_ID]id[ARGS]`; only the name is required."""
    field = yield from s.field(markers(ID, ARGUMENTS, "{"))
    name = field[0].strip() if field else ""
    if not field or not _NAME.fullmatch(name):
        return None
    if field[1] != ID:
        s.pos -= field[1] == "{"
        return CallHead(name)
    id = yield from s.field(markers(ARGUMENTS))
    return CallHead(name, id[0].strip()) if id else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}{ARGUMENTS}", ""


MARKUP: Final = Markup(calls={OPEN: NameThenJson(head).read}, reasoning_tags=REASONING_TAGS)

FORMAT: Final = json_format(
    name="mistral",
    model_families="Mistral Small 3.2, Magistral, Devstral, Ministral 3, Medium 3 and later",
    source="InstructTokenizerV11 and V13 of mistral-common 1.13.1 (2026-11)",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN, ID, ARGUMENTS, "[TOOL_RESULTS]", *REASONING_TAGS, *REASONING_TAGS.values()),
    separator="",
    tools=ToolListMarkup(("[AVAILABLE_TOOLS][", "][/AVAILABLE_TOOLS]"), separator=", "),
    result=ToolResultMarkup("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    aliases=("mistral_v11", "mistral_v13", "ministral", "devstral", "magistral"),
)
