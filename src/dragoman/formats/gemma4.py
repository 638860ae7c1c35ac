"""Gemma 4: a call in object notation, strings between their own delimiters.

    <|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>

(Several calls follow one another.) Reasoning is in `<|channel>thought` … `<channel|>` before the answer; with thinking
disabled it is empty. Strings are raw, without escapes; the template sorts keys, also in nested objects. Also accepted:
a missing opening delimiter of a string; both delimiters missing; blanks around keys; a missing `<tool_call|>`; calls in
a fence ```tool_code, as small models write them.

Source: https://ai.google.dev/gemma/docs/core/prompt-formatting-gemma4; chat template of google/gemma-4-31B-it
(2026-04), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.gemma_object import ObjectNotationCalls
from dragoman.parsing.shapes.python_call import TOOL_CODE, read_tool_code
from dragoman.parsing.tool_markup import ToolResultMarkup

OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
REASONING_TAGS: Final = {"<|channel>thought": "<channel|>"}
CALLS: Final = ObjectNotationCalls(OPEN, CLOSE, QUOTE)
MARKUP: Final = Markup(
    calls={OPEN: CALLS.read, TOOL_CODE: read_tool_code},
    reasoning_tags=REASONING_TAGS,
    closers=(CLOSE,),
    ignored_wrappers=(
        *(f"<|channel>{name}{end}" for name in ("response", "final") for end in ("\n", "")),
        "<|channel>",
    ),
    keep_whitespace=True,
)

FORMAT: Final = text_format(
    name="gemma4",
    model_families="Gemma 4",
    source="chat template of google/gemma-4-31B-it (2026-04), as llama.cpp has it (2026-10)",
    read=MARKUP,
    arguments="notation",
    write_call=CALLS.write,
    constrain_call=CALLS.constrain_call,
    opener=OPEN,
    markers=(OPEN, CLOSE, QUOTE, *REASONING_TAGS, *REASONING_TAGS.values(), "<|channel>", "<|turn>", "<turn|>"),
    separator="",
    result=ToolResultMarkup("<|tool_response>response:{name}{value:" + QUOTE, QUOTE + "}<tool_response|>"),
    aliases=("gemma_4",),
)
