"""FunctionGemma: a call in object notation, strings between `<escape>`.

    <start_function_call>call:get_weather{city:<escape>Paris<escape>,days:3}<end_function_call>

(Several calls follow one another.) Written by FunctionGemma 270M and its fine-tunes, which write hardly anything else
and no reasoning. Also accepted: what `parsing/shapes/gemma_object.py` accepts, such as a missing `<escape>`; a missing
`<end_function_call>`.

Source: https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices (2025-12) documents the tokens; the
`functiongemma` parser of vLLM 0.33 reads them. The chat template was not available; keys are sorted as in that of Gemma
4, and a result is one `value`, as in public traces of the model (2026).
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.gemma_object import ObjectNotationCalls
from dragoman.parsing.tool_markup import ToolResultMarkup

OPEN, CLOSE, QUOTE = "<start_function_call>", "<end_function_call>", "<escape>"
CALLS: Final = ObjectNotationCalls(OPEN, CLOSE, QUOTE)
MARKUP: Final = Markup(calls={OPEN: CALLS.read}, reasoning_tags={}, closers=(CLOSE,))

FORMAT: Final = text_format(
    name="functiongemma",
    model_families="FunctionGemma",
    source="https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices (2025-12)",
    read=MARKUP,
    arguments="notation",
    write_call=CALLS.write,
    constrain_call=CALLS.constrain_call,
    opener=OPEN,
    markers=(OPEN, CLOSE, QUOTE, "<start_of_turn>", "<end_of_turn>"),
    separator="",
    result=ToolResultMarkup(
        "<start_function_response>response:{name}{value:" + QUOTE, QUOTE + "}<end_function_response>"
    ),
)
