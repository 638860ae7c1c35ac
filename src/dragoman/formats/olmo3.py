"""Olmo 3: Python calls, one per line, between tags.

    <function_calls>get_weather(city="Paris", now=true)
    ping()</function_calls>

Written by Olmo 3 and 3.1, Instruct and Think. The template has no line breaks inside the tags and writes values as
JSON; models write both forms, and Python values too. Reasoning is in `<think>…</think>` before the answer. Also
accepted: the calls as a list or with commas, a missing closing tag.

Source: chat template of Olmo 3 Instruct (2025-11), as public copies of it have it. vLLM's
tool_chat_template_olmo3.jinja, written by its users, has line breaks and other quotes.
"""

from functools import partial
from typing import Final

from dragoman.core.messages import ToolCall
from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.python_call import PythonCalls
from dragoman.parsing.shapes.python_writer import AS_JSON, constrain_call
from dragoman.parsing.shapes.tagged import typed_values
from dragoman.schema.argument_types import as_string

OPEN, CLOSE = "<function_calls>", "</function_calls>"
MARKUP: Final = Markup(
    calls={OPEN: PythonCalls((CLOSE,), lines=True).read},
    reasoning_tags={"<think>": "</think>"},
    closers=(CLOSE,),
)


def write_call(call: ToolCall) -> str:
    """Returns the call in Python syntax, with JSON values."""
    values = ((key, as_string(text) if kind == "string" else text) for key, text, kind in typed_values(call.arguments))
    return f"{call.name}({', '.join(f'{key}={value}' for key, value in values)})"


FORMAT: Final = text_format(
    name="olmo3",
    model_families="Olmo 3, Olmo 3.1",
    source="chat template of Olmo 3 Instruct (2025-11), as public copies have it",
    read=MARKUP,
    arguments="Python",
    write_call=write_call,
    constrain_call=partial(constrain_call, values=AS_JSON),
    opener=OPEN,
    markers=(OPEN, CLOSE, "<think>", "</think>", "<|im_start|>", "<|im_end|>"),
    section=(OPEN, CLOSE),
)
