"""Functionary v3.2: messages to recipients; a message to a function is a call.

    >>>all
    Let me look.>>>get_weather
    {"city": "Paris"}

Written by functionary-small-v3.2 and medium-v3.1 and later, also v3.llama3; the prompt ends with the first `>>>`. A
message to `all` is text, and so is code for the interpreter, `>>>python`. `>>>` begins a message only if a name and the
end of its line follow. The end of the JSON object ends the arguments.

Source: chat template of meetkai/functionary-medium-v3.2 (2024-08), as in llama.cpp (2026-10).
"""

import re
from typing import Final

from dragoman.parsing.channels import ChannelRoute, Channels, name_reader
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson, head_in_header

OPEN, LINE, CRLF, ALL = ">>>", "\n", "\r\n", "all"
_HEADER = re.compile(rf"\s*(?:{OPEN})?([\w.-]*\w)(?:\r?\n)?")


def route(header: str, _: str) -> ChannelRoute | None:
    """Routes a message by its recipient."""
    match = _HEADER.fullmatch(header)
    return ChannelRoute("text" if match[1] == ALL else "call") if match else None


def head(header: str) -> CallHead | None:
    """Returns the recipient in the header."""
    match = _HEADER.fullmatch(header)
    return CallHead(match[1]) if match else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}{LINE}", ""


MESSAGES: Final = Channels(
    starts=(OPEN,),
    bodies=(LINE, CRLF),
    route=route,
    call=NameThenJson(head_in_header(head)).read,
    breaks=(OPEN,),
    read_opened_header=name_reader(LINE, CRLF),
)

FORMAT: Final = json_format(
    name="functionary_v32",
    model_families="functionary v3.2 and medium v3.1, v3.llama3",
    source="chat template of meetkai/functionary-medium-v3.2 (2024-08), as llama.cpp has it (2026-10)",
    read=MESSAGES,
    calls={},
    call_wrapper=call_wrapper,
    opener=OPEN,
    markers=(OPEN,),
    separator="",
    aliases=("functionary_v3_2", "functionary"),
)
