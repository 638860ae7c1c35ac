"""Pythonic: a list of Python calls is the whole reply.

    [get_weather(city="Paris"), set_alarm(hour=7, repeat=True)]

Written by Llama 3.2 and Llama 4, which may write `<|python_start|>` and `<|python_end|>` around it, and by Gemma 3 and
others when prompted for it. Without that marker, a list is read as calls only if it begins the reply, names an offered
tool, and has named arguments; otherwise it is text. Also accepted: a missing `]`, text after the list, calls in a fence
```tool_code, as Gemma writes them, calls at the start of the reply without a list.

Source: https://www.llama.com/docs/model-cards-and-prompt-formats/llama4/ (2025-04), …/llama3_2/ (2024-09), as in
tool_chat_template_llama4_pythonic.jinja of vLLM, which writes every value in quotes.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.python_call import BARE_CALLS, TOOL_CODE, PythonCalls, read_tool_code
from dragoman.parsing.shapes.python_writer import constrain_call, write_call

OPEN, CLOSE = "<|python_start|>", "<|python_end|>"
MARKUP: Final = Markup(
    calls={OPEN: PythonCalls((CLOSE,), lines=True).read, TOOL_CODE: read_tool_code},
    reasoning_tags={},
    closers=(CLOSE,),
    untagged_calls={"[": PythonCalls().read, **BARE_CALLS},
)

FORMAT: Final = text_format(
    name="pythonic",
    model_families="Llama 3.2, Llama 4, Gemma 3 as prompted",
    source="https://www.llama.com/docs/model-cards-and-prompt-formats/llama4/ (2025-04)",
    read=MARKUP,
    arguments="Python",
    write_call=write_call,
    constrain_call=constrain_call,
    opener="",
    markers=(OPEN, CLOSE, "<|header_start|>", "<|header_end|>", "<|eot|>", "<|eom|>"),
    section=("[", "]"),
    separator=", ",
    aliases=("llama4_pythonic",),
)
