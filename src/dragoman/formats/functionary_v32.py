"""Functionary v3.2: messages to recipients; those to a function are calls of it.

    >>>all
    Let me look.>>>get_weather
    {"city": "Paris"}

Written by functionary-small-v3.2 and medium-v3.1 and later, also v3.llama3; the prompt has opened the first `>>>`. What
is sent to `all` is text, and so is code for the interpreter, `>>>python`. `>>>` in a text begins no message where no
bare name and the end of its line follow. Arguments end themselves.

Source: chat template of meetkai/functionary-medium-v3.2 (2024-08), as llama.cpp has it (2026-10).
"""

import re
from typing import Final

from dragoman.parsing.channels import Channels, Route, name_before
from dragoman.parsing.define_format import json_format
from dragoman.parsing.shapes.name_then_json import Head, NamedJson
from dragoman.text.scanner import Parser, Scanner

OPEN, LINE, CRLF, ALL = ">>>", "\n", "\r\n", "all"
_HEADER = re.compile(rf"\s*(?:{OPEN})?([\w.-]*\w)(?:\r?\n)?")


def route(header: str, _: str) -> Route | None:
    """By recipient."""
    found = _HEADER.fullmatch(header)
    return Route("text" if found[1] == ALL else "call") if found else None


def head(_: Scanner, header: str) -> Parser[Head | None]:
    """The recipient in the header, which has been read."""
    yield from ()
    found = _HEADER.fullmatch(header)
    return Head(found[1]) if found else None


def around(name: str, _: str) -> tuple[str, str]:
    """What stands before and behind the arguments."""
    return f"{OPEN}{name}{LINE}", ""


MESSAGES: Final = Channels(
    starts=(OPEN,),
    bodies=(LINE, CRLF),
    route=route,
    call=NamedJson(head).read,
    breaks=(OPEN,),
    first=name_before(LINE, CRLF),
)

FORMAT: Final = json_format(
    name="functionary_v32",
    models="functionary v3.2 and medium v3.1, v3.llama3",
    source="chat template of meetkai/functionary-medium-v3.2 (2024-08), as llama.cpp has it (2026-10)",
    read=MESSAGES,
    calls={},
    around=around,
    opener=OPEN,
    markers=(OPEN,),
    separator="",
    aliases=("functionary_v3_2", "functionary"),
)
