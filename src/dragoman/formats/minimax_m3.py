"""MiniMax M3: arguments as nested elements, each tag after a special token.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="plan">]<]minimax[>[<city>Paris]<]minimax[>[</city>]<]minimax[>[<days>]<]minimax[>[<item>1
    ]<]minimax[>[</item>]<]minimax[>[</days>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

(The second and third line are one.) The schema determines what is an object or array; otherwise elements named `item`
form an array, others an object. Strings are raw, including trailing spaces.

Source: chat template of MiniMaxAI/MiniMax-M3 (2026-06), as in llama.cpp (2026-10). The template omits null values;
Dragoman writes them.
"""

from typing import Final

from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.invoke_tags import read_attributes
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.nested.elements import NestedElements
from dragoman.parsing.shapes.tagged import WrappedCalls
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner

MARK: Final = "]<]minimax[>["
SECTION: Final = (f"{MARK}<tool_call>", f"{MARK}</tool_call>")
INVOKE, INVOKE_END = f"{MARK}<invoke", f"{MARK}</invoke>"
OPENERS: Final = (f"{INVOKE} ", f"{INVOKE}\n")
REASONING_TAGS: Final = {"<mm:think>": "</mm:think>"}


def head(s: Scanner, _: str) -> Parser[CallHead | None]:
    """Reads `name="get_weather">`."""
    attributes = yield from read_attributes(s, ">")
    return CallHead(attributes[0]["name"], closed=attributes[1]) if attributes and "name" in attributes[0] else None


def write_call(call: ToolCall) -> str:
    """Returns the call without white space between the tags."""
    return f"{before(call.name)}{CALL.write(call)}{INVOKE_END}"


def before(name: str) -> str:
    """Returns the text before the arguments of a call of this tool."""
    return f'{INVOKE} name="{name}">'


def constrain_call(tool: Tool) -> ConstrainedCall:
    """Returns the constraint for calls of this tool."""
    return CALL.constrain_call(tool, before(tool.name))


CALL: Final = NestedElements(head, MARK, "</invoke>")
MARKUP: Final = Markup(
    calls={SECTION[0]: WrappedCalls(CALL.read, OPENERS, SECTION[1]).read} | dict.fromkeys(OPENERS, CALL.read),
    reasoning_tags=REASONING_TAGS,
    closers=(INVOKE_END, SECTION[1]),
)

FORMAT: Final = text_format(
    name="minimax_m3",
    model_families="MiniMax M3",
    source="chat template of MiniMaxAI/MiniMax-M3 (2026-06), as llama.cpp has it (2026-10)",
    read=MARKUP,
    write_call=write_call,
    constrain_call=constrain_call,
    opener=SECTION[0],
    markers=(MARK, *REASONING_TAGS, *REASONING_TAGS.values()),
    section=(f"{SECTION[0]}\n", f"\n{SECTION[1]}"),
    tools=ToolListMarkup(tool_wrapper=("<tool>{", "}</tool>")),
    result=ToolResultMarkup("<response>", "</response>"),
    aliases=("minimax-m3",),
)
