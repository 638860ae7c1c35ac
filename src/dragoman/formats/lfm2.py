"""LFM2: a list of Python calls between markers.

    <|tool_call_start|>[get_weather(city="Paris"), ping()]<|tool_call_end|>Let me see.

Written by LFM2 and LFM2.5, with text before or after it; reasoning models begin with `<think>…</think>`. If prompted
for JSON, they write an array of `{"name": …, "arguments": …}` instead, which is read too. Also accepted: a call without
brackets, calls without commas.

Source: chat template of LiquidAI/LFM2.5-8B-A1B (2026), as in llama.cpp (2026-10), which writes Python's own quotes,
'Paris', and objects as JSON; model card of LiquidAI/LFM2-1.2B-Tool (2025-09), which uses the quotes above. Templates of
other LFM2 show no past calls.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.python_call import PythonCalls
from dragoman.parsing.shapes.python_writer import constrain_call, write_call
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
MARKUP: Final = Markup(
    calls={OPEN: PythonCalls((CLOSE,), lines=True).read},
    reasoning_tags={"<think>": "</think>"},
    closers=(CLOSE,),
)

FORMAT: Final = text_format(
    name="lfm2",
    model_families="LFM2, LFM2.5",
    source="chat template of LFM2.5-8B-A1B (2026) in llama.cpp; model card of LFM2-1.2B-Tool (2025-09)",
    read=MARKUP,
    arguments="Python",
    write_call=write_call,
    constrain_call=constrain_call,
    opener=OPEN,
    markers=(OPEN, CLOSE, "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    section=(f"{OPEN}[", f"]{CLOSE}"),
    separator=", ",
    tools=ToolListMarkup(("<|tool_list_start|>[", "]<|tool_list_end|>"), separator=", "),
    result=ToolResultMarkup("<|tool_response_start|>", "<|tool_response_end|>"),
)
