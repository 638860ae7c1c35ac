"""CWM: a tool's name and what it is given as plain text, as in a shell.

    <tool: function>
    terminal find . -name "*.py"
    </tool>

The text is the tool's one string, `command` where it has several or none that is known; a JSON object is all arguments.
The label says nothing. Seen and taken: the label in the name's place without its `>`, `<tool: terminal find .</tool>`.

Source: vLLM's parser cwm, an open change (2026-01), which reads facebook/cwm; the template was not seen.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.json_block import THINK
from dragoman.parsing.shapes.plain_text_call import CLOSE, OPEN, constrain_call, read, write_call

FORMAT: Final = text_format(
    name="cwm",
    model_families="CWM",
    source="vLLM's parser cwm, an open change (2026-01); the template was not seen",
    read=Markup(calls={OPEN: read}, reasoning_tags=THINK, closers=(CLOSE,)),
    write_call=write_call,
    constrain_call=constrain_call,
    opener=OPEN,
    markers=(OPEN, CLOSE, "<think>", "</think>"),
)
