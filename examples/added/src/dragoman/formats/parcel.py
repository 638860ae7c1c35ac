"""Parcel: a function name in double angle brackets, then the arguments.

    <<call get_weather>>{"city": "Paris"}<</call>>

Several calls are written one per line. Reasoning is in `<<think>>…<</think>>` before the answer. Accepted: a missing
closing mark. There is no template: no model writes this format; it is the example of docs/adding-a-format.md.

Source: docs/adding-a-format.md (2026-11).
"""

from typing import Final

from dragoman.parsing.define_format import json_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.name_then_json import CallHead, NameThenJson
from dragoman.text.scanner import Parser, Scanner, markers

OPEN, CLOSE = "<<call ", "<</call>>"


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """`name>>`."""
    found = yield from s.field(markers(">>"))
    return CallHead(found[0].strip()) if found else None


def call_wrapper(name: str, _: str) -> tuple[str, str]:
    """Returns the text before and after the arguments."""
    return f"{OPEN}{name}>>", CLOSE


FORMAT: Final = json_format(
    name="parcel",
    model_families="nobody: the example of docs/adding-a-format.md",
    source="docs/adding-a-format.md (2026-11)",
    read=Markup(
        calls={OPEN: NameThenJson(head, closers=(CLOSE,)).read},
        reasoning_tags={"<<think>>": "<</think>>"},
        closers=(CLOSE,),
    ),
    call_wrapper=call_wrapper,
    opener=OPEN,
    reasoning_wrapper=("<<think>>\n", "\n<</think>>\n\n"),
    markers=(OPEN, CLOSE, "<<think>>", "<</think>>"),
)
