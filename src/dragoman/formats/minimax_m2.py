"""MiniMax M2: calls and parameters named in attributes.

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Paris</parameter>
    </invoke>
    </minimax:tool_call>

Values are raw, including trailing spaces; the tool's schema defines their types. Also accepted: names in single quotes
or without quotes.

Source: chat template of MiniMaxAI/MiniMax-M2 (2025-10), as in llama.cpp (2026-10).
"""

from typing import Final

from dragoman.parsing.shapes.invoke_tags import InvokeTags, invoke_format
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

TAGS: Final = InvokeTags(section=("<minimax:tool_call>", "</minimax:tool_call>"))

FORMAT: Final = invoke_format(
    TAGS,
    name="minimax_m2",
    model_families="MiniMax M2, M2.1, M2.5",
    source="chat template of MiniMaxAI/MiniMax-M2 (2025-10), as llama.cpp has it (2026-10)",
    reasoning_wrapper=("<think>\n", "\n</think>\n\n"),
    tools=ToolListMarkup(tool_wrapper=("<tool>{", "}</tool>")),
    result=ToolResultMarkup("<response>", "</response>"),
    aliases=("minimax-m2",),
)
