"""Command of 2026: calls named by attributes, their arguments as values within values.

    <|START_THINKING|>Look first.<|END_THINKING|><cofl:tool_calls><cofl:tool_call id="0" name="get_weather">
    <cofl:value name="city" type="raw">Paris</cofl:value><cofl:value name="days" type="list">
    <cofl:value type="json">1</cofl:value></cofl:value></cofl:tool_call></cofl:tool_calls>

(No line breaks.) Answers may stand in `<|START_TEXT|>…<|END_TEXT|>` (or RESPONSE). Attributes hold XML's entities,
values do not. Ids count calls over the conversation. Seen and taken: the flat notation of the same vendor,
`<cofl:tool_param name="city" string="true">Paris</cofl:tool_param>`; one JSON object in place of the parameters; calls
without the section around them.

Source: render_cmd5 and the cmd5 filter of cohere-melody 0.15.3, Cohere's own package (2026-10).
"""

from typing import Final

from dragoman.constraints.constraint import HeldCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.invoke_tags import Invoke, escaped
from dragoman.parsing.shapes.tagged import Wrapped
from dragoman.parsing.shapes.typed_values import Nested
from dragoman.parsing.tool_markup import ShownResult, ShownTools

CALL, VALUE = ("<cofl:tool_call", "</cofl:tool_call>"), ("<cofl:value", "</cofl:value>")
SECTION: Final = ("<cofl:tool_calls>", "</cofl:tool_calls>")
THOUGHTS: Final = {"<|START_THINKING|>": "<|END_THINKING|>"}
FRAMES: Final = ("<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")
FLAT: Final = Invoke(CALL, ("<cofl:tool_param", "</cofl:tool_param>"), SECTION, says="string", escapes=True)
NESTED: Final = Nested(VALUE, FLAT.tagged())
ITEM: Final = '<cofl:tool_result id="{id}" is_error="{error}"><cofl:tool_result_item index="0">{"content": '
ITEM_END: Final = "}</cofl:tool_result_item></cofl:tool_result>"
RESULT: Final = (f"<cofl:tool_results>{ITEM}", f"{ITEM_END}</cofl:tool_results>")


def write_call(call: ToolCall) -> str:
    """The call as the template has it."""
    return f"{before(call.name, call.id)}{NESTED.write(call)}{CALL[1]}"


def before(name: str, id: str = "") -> str:
    """What stands before the arguments of this tool."""
    return f'{FLAT.openers[0]}id="{escaped(id or "0")}" name="{escaped(name)}">'


def hold(tool: Tool) -> HeldCall:
    """The calls of this tool that there can be."""
    return NESTED.hold(tool, before(tool.name))


FORMAT: Final = text_format(
    name="cohere_cofl",
    models="Command of 2026 (cmd5)",
    source="render_cmd5 of cohere-melody 0.15.3 (2026-10)",
    read=Markup(
        calls={SECTION[0]: Wrapped(NESTED.read, FLAT.openers, SECTION[1]).read}
        | dict.fromkeys(FLAT.openers, NESTED.read),
        thoughts=THOUGHTS,
        closers=(CALL[1], SECTION[1]),
        frames=FRAMES,
    ),
    write_call=write_call,
    hold=hold,
    opener=SECTION[0],
    markers=(*FLAT.markers(), *VALUE, *THOUGHTS, *THOUGHTS.values(), *FRAMES),
    section=SECTION,
    separator="",
    ids="",
    tools=ShownTools(("```json\n[\n    ", "\n]\n```"), ("{", ', "responses": null}'), ",\n    "),
    result=ShownResult(*RESULT, error=("false", "true"), quoted=True),
    aliases=("cmd5",),
)
