"""Parcel: a function's name in double angles, the arguments behind.

    <<call get_weather>>{"city": "Paris"}<</call>>

Several calls are several such, one a line. Thoughts stand in `<<think>>…<</think>>` before the answer. Seen and taken
is a missing closing mark. No template can be had: nobody writes this, it is the example of docs/adding-a-format.md.

Source: docs/adding-a-format.md (2026-11).
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import Head, NamedJson
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, CLOSE = "<<call ", "<</call>>"


def head(s: Scanner, _: str) -> Parser[Head | None]:
    """`name>>`."""
    found = yield from s.field(markers(">>"))
    return Head(found[0].strip()) if found else None


def around(name: str, _: str) -> tuple[str, str]:
    """What stands before and behind the arguments."""
    return f"{OPEN}{name}>>", CLOSE


FORMAT: Final = json_format(
    name="parcel",
    models="nobody: the example of docs/adding-a-format.md",
    source="docs/adding-a-format.md (2026-11)",
    read=Markup(
        calls={OPEN: NamedJson(head, closers=(CLOSE,)).read},
        thoughts={"<<think>>": "<</think>>"},
        closers=(CLOSE,),
    ),
    around=around,
    opener=OPEN,
    thought=("<<think>>\n", "\n<</think>>\n\n"),
    markers=(OPEN, CLOSE, "<<think>>", "<</think>>"),
)
