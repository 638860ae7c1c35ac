"""Sarashina: a list of Python dicts after a token, which servers often drop.

    <|tool_calls|>[{'name': 'get_weather', 'arguments': {'city': 'Paris'}}]

Written by Sarashina 2.2. Without the token, a list is read as calls only at the start of a reply and if its first
object begins as a call of an offered tool. The list has no closing marker. Also accepted: JSON quotes, a single object
without a list.

Source: https://github.com/lightseekorg/smg, crates/tool_parser/src/parsers/sarashina.rs (2026-09); the template was not
available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.python_dicts import PythonObjects, constrain_call, write_call

OPEN: Final = "<|tool_calls|>"
BARE: Final = PythonObjects(tagged=False)

FORMAT: Final = text_format(
    name="sarashina",
    model_families="Sarashina 2.2",
    source="smg's parser sarashina (2026-09); the template was not seen",
    read=Markup(
        calls={OPEN: PythonObjects().read}, reasoning_tags={"<think>": "</think>"}, untagged_calls={"[": BARE.read}
    ),
    arguments="Python",
    write_call=write_call,
    constrain_call=constrain_call,
    opener=OPEN,
    markers=(OPEN, "<think>", "</think>"),
    section=(f"{OPEN}[", "]"),
    separator=", ",
)
