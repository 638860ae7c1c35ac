"""MiniMax M2: calls and parameters named by attributes.

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </minimax:tool_call>

Values are raw, to the last space, of the types of the tool's schema. Seen and taken: names in single quotes or none.

Source: chat template of MiniMaxAI/MiniMax-M2 (2025-10), as llama.cpp has it (2026-10).
"""

from typing import Final

from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.invoke_tags import Invoke
from dragoman.parsing.tool_markup import ShownResult, ShownTools

TAGS: Final = Invoke(
    call=("<invoke", "</invoke>"),
    parameter=("<parameter", "</parameter>"),
    section=("<minimax:tool_call>", "</minimax:tool_call>"),
)

FORMAT: Final = text_format(
    name="minimax_m2",
    models="MiniMax M2, M2.1, M2.5",
    source="chat template of MiniMaxAI/MiniMax-M2 (2025-10), as llama.cpp has it (2026-10)",
    read=TAGS.markup({"<think>": "</think>"}),
    write_call=TAGS.written.write_call,
    hold=TAGS.written.hold,
    opener=TAGS.section[0],
    thought=("<think>\n", "\n</think>\n\n"),
    markers=(*TAGS.markers(), "<think>", "</think>"),
    section=TAGS.written_section,
    tools=ShownTools(each=("<tool>{", "}</tool>")),
    result=ShownResult("<response>", "</response>"),
    aliases=("minimax-m2",),
)
