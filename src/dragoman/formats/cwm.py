"""CWM: a tool's name and its input as plain text, as in a shell.

    <tool: function>
    terminal find . -name "*.py"
    </tool>

The text is the value of the tool's only string parameter, or of `command` if the tool has several or its parameters are
unknown; a JSON object is read as all arguments. The label is ignored. Also accepted: the name in the position of the
label, without `>`, `<tool: terminal find .</tool>`.

Source: vLLM's parser cwm, an open change (2026-01), which reads facebook/cwm; the template was not available.
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.format import THINK
from dragoman.parsing.markup import Markup
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
