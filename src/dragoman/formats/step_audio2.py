"""Step-Audio 2: the word `function`, the tool's name and its arguments, each on its own line.

    <tool_call>function
    get_weather
    {"city": "Paris"}</tool_call>

Source: https://github.com/vllm-project/vllm, vllm/tool_parsers/step_audio_2_tool_parser.py, an open change (2025-12);
the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.format import THINK
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, OPEN_CRLF, CLOSE = "<tool_call>function\n", "<tool_call>function\r\n", "</tool_call>"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads the name, up to the end of its line."""
    field = yield from s.field(markers("\n", "{", "<"))
    if field is None or field[1] == "<":
        return None
    s.pos -= len(field[1]) if field[1] == "{" else 0
    return CallHead(field[0].strip())


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}\n", CLOSE


MARKUP: Final = Markup(
    calls=dict.fromkeys((OPEN, OPEN_CRLF), NameThenJson(head, closers=(CLOSE,)).read),
    reasoning_tags=THINK,
    closers=(CLOSE,),
)

FORMAT: Final = json_format(
    name="step_audio2",
    model_families="Step-Audio 2",
    source="vLLM's parser step_audio_2, an open change (2025-12); the template was not seen",
    read=MARKUP,
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN.strip(), CLOSE, "<tool_call>", "<think>", "</think>"),
    separator="",
    aliases=("step_audio_2",),
)
