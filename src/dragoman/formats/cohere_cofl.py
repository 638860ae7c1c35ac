"""Command of 2026: calls named in attributes, with arguments as nested values.

    <|START_THINKING|>Look first.<|END_THINKING|><cofl:tool_calls><cofl:tool_call id="0" name="get_weather">
    <cofl:value name="city" type="raw">Paris</cofl:value><cofl:value name="days" type="list">
    <cofl:value type="json">1</cofl:value></cofl:value></cofl:tool_call></cofl:tool_calls>

(The line breaks were added here.) Answers may be in `<|START_TEXT|>…<|END_TEXT|>` (or RESPONSE). Attributes contain XML
entities, values do not. Ids count the calls of the conversation. Also accepted: the same vendor's flat notation,
`<cofl:tool_param name="city" string="true">Paris</cofl:tool_param>`; one JSON object instead of the parameters; calls
outside a section.

Source: render_cmd5 and the cmd5 filter of cohere-melody 0.15.3, Cohere's own package (2026-10).
"""

from typing import Final

from dragoman.constraints.constraint import ConstrainedCall
from dragoman.core.messages import Tool, ToolCall
from dragoman.parsing.define_format import text_format
from dragoman.parsing.markup import Markup
from dragoman.parsing.shapes.invoke_tags import InvokeTags, escape_attribute
from dragoman.parsing.shapes.nested.typed_values import TypedValues
from dragoman.parsing.shapes.tagged import WrappedCalls
from dragoman.parsing.tool_markup import ToolListMarkup, ToolResultMarkup

CALL, VALUE = ("<cofl:tool_call", "</cofl:tool_call>"), ("<cofl:value", "</cofl:value>")
SECTION: Final = ("<cofl:tool_calls>", "</cofl:tool_calls>")
REASONING_TAGS: Final = {"<|START_THINKING|>": "<|END_THINKING|>"}
FRAMES: Final = ("<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>")
PARAMETER: Final = ("<cofl:tool_param", "</cofl:tool_param>")
FLAT: Final = InvokeTags(CALL, PARAMETER, SECTION, type_attribute="string", escapes=True)
NESTED: Final = TypedValues(VALUE, FLAT.tagged())
ITEM: Final = '<cofl:tool_result id="{id}" is_error="{error}"><cofl:tool_result_item index="0">{"content": '
RESULT: Final = (f"<cofl:tool_results>{ITEM}", "}</cofl:tool_result_item></cofl:tool_result></cofl:tool_results>")


def write_call(call: ToolCall) -> str:
    """Returns the call as the template writes it."""
    return f"{before(call.name, call.id)}{NESTED.write(call)}{CALL[1]}"


def before(name: str, id: str = "") -> str:
    """Returns the text before the arguments of a call of this tool."""
    return f'{FLAT.openers[0]}id="{escape_attribute(id or "0")}" name="{escape_attribute(name)}">'


def constrain_call(tool: Tool) -> ConstrainedCall:
    """Returns the constraint for calls of this tool."""
    return NESTED.constrain_call(tool, before(tool.name))


FORMAT: Final = text_format(
    name="cohere_cofl",
    model_families="Command of 2026 (cmd5)",
    source="render_cmd5 of cohere-melody 0.15.3 (2026-10)",
    read=Markup(
        calls={SECTION[0]: WrappedCalls(NESTED.read, FLAT.openers, SECTION[1]).read}
        | dict.fromkeys(FLAT.openers, NESTED.read),
        reasoning_tags=REASONING_TAGS,
        closers=(CALL[1], SECTION[1]),
        ignored_wrappers=FRAMES,
    ),
    write_call=write_call,
    constrain_call=constrain_call,
    opener=SECTION[0],
    markers=(*FLAT.markers(), *VALUE, *REASONING_TAGS, *REASONING_TAGS.values(), *FRAMES),
    section=SECTION,
    separator="",
    id_prefix="",
    tools=ToolListMarkup(("```json\n[\n    ", "\n]\n```"), ("{", ', "responses": null}'), ",\n    "),
    result=ToolResultMarkup(*RESULT, error=("false", "true"), quoted=True),
    aliases=("cmd5",),
)
