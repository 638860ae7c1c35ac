"""Defines formats: how a prompt shows tools, past calls and results.

A format states how a call is written, and the markup of tools and results (`parsing/tool_markup.py`); the instructions
around them are the same for all formats. For models with a chat template that supports tools, the template replaces all
of this (`backends/text_mode/chat_template.py`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NotRequired, TypeAlias, TypedDict, Unpack

from dragoman.constraints.constraint import ConstrainedCall, Constraint
from dragoman.constraints.grammar import JsonValue
from dragoman.core.messages import JsonText, Tool, ToolCall, ToolChoice
from dragoman.parsing.channels import Channels
from dragoman.parsing.format import ArgumentNotation, Format
from dragoman.parsing.markup import Markup
from dragoman.parsing.markup.reply import reply_reader
from dragoman.parsing.markup.section import section_reader
from dragoman.parsing.sink import ReadCall, ReadReply
from dragoman.parsing.tool_markup import RESULT, TOOLS, ToolListMarkup, ToolResultMarkup
from dragoman.text.json_stream import JsonStream

_HEAD = "# Tools\n\nThese tools can be run for you. Each {unit} is one tool with the JSON Schema of its arguments:"
_HOW = """To have a tool run, write a request in exactly this form, with the tool's name and arguments that fit it:
{example}
You only write the request; somebody else runs the tool and gives you its result in {result} in the next \
message. Stop after the request. Do not describe it, and do not make up its result. \
Use only tools of the list. Where no tool helps, answer in plain text."""
EXAMPLE: Final = ToolCall("call00001", "the tool's name", '{"argument": "value"}')
"""The example call in the prompt."""
CallWrapper: TypeAlias = Callable[[str, str], tuple[str, str]]


class PromptMarkup(TypedDict, total=False):
    """How a prompt shows tools, results and ids. The default is markup that no model family was trained on."""

    tools: ToolListMarkup
    result: ToolResultMarkup
    id_prefix: str
    """Default: ids do not count."""


class FormatFields(PromptMarkup):
    """What every format states about itself, and how a prompt shows its tools; see `Format`."""

    name: str
    model_families: str
    source: str
    aliases: NotRequired[tuple[str, ...]]
    reasoning_wrapper: NotRequired[tuple[str, str]]
    """Default: the markup's first reasoning tags."""


class _FormatFields(FormatFields):
    """The fields that every format defines."""

    read: Markup | Channels | ReadReply
    calls: NotRequired[Mapping[str, ReadCall]]
    """Readers by opener, for replies of unknown format. Default: those of the markup."""
    opener: str
    """The text that begins the first of several calls, whatever its name; the beginning of the section, if there is
    one.

    "" if prose may begin the same way: then output is not constrained while the choice is free.
    """
    markers: tuple[str, ...]
    section: NotRequired[tuple[str, str]]
    separator: NotRequired[str]
    first_call_marker: NotRequired[str]
    reasoning_markers: NotRequired[tuple[str, ...]]
    """Default: those of the markup, or the beginning of `reasoning_wrapper`."""
    arguments: NotRequired[ArgumentNotation]
    """Default: "tagged"."""


def json_format(*, call_wrapper: CallWrapper, **fields: Unpack[_FormatFields]) -> Format:
    """Returns a format whose calls contain their arguments as one JSON object.

    Args:
        call_wrapper: returns the text before and after that object, for a call's name and id.
        fields: see `_FormatFields`.
    """

    def write_call(call: ToolCall) -> str:
        before, after = call_wrapper(call.name, call.id)
        return f"{before}{object_or_string(call.arguments)}{after}"

    def constrain_call(tool: Tool) -> ConstrainedCall:
        before, after = call_wrapper(tool.name, "")
        return ConstrainedCall(before, JsonValue(tool.parameters, arguments=True), after)

    return replace(text_format(write_call=write_call, constrain_call=constrain_call, **fields), arguments="JSON")


def text_format(
    *,
    write_call: Callable[[ToolCall], str],
    constrain_call: Callable[[Tool], ConstrainedCall] | None = None,
    **fields: Unpack[_FormatFields],
) -> Format:
    """Returns a format whose calls are written in another way.

    `constrain_call` returns the constraint for calls of a tool; None: output is never constrained.
    """
    section, separator = fields.get("section", ("", "")), fields.get("separator", "\n")
    tools, result = fields.get("tools", TOOLS), fields.get("result", RESULT)
    read = fields["read"]
    if isinstance(read, Markup):  # a result that the model writes itself is made up
        read = replace(read, result_markers=tuple(dict.fromkeys((*read.result_markers, result.markers[0]))))
    read_reply, calls, reasoning_tags = _readers(read)
    reasoning_wrapper = fields.get("reasoning_wrapper", next(iter(reasoning_tags.items()), ("", "")))
    markers = tuple(dict.fromkeys((*fields["markers"], *result.markers, *tools.markers)))
    if isinstance(read, Markup):  # whatever is read means something, so that none of it can be forgotten
        markers += tuple(mark for mark in read.marks if not any(known in mark for known in markers))

    def constrain(tools: Sequence[Tool], choice: ToolChoice) -> Constraint | None:
        offered = [t for t in tools if t.kind == "function" and (choice.mode != "named" or t.name == choice.name)]
        free, opener = choice.mode == "auto", fields["opener"]
        if not constrain_call or not offered or choice.mode == "none" or (free and not opener):
            return None
        many = choice.parallel_tool_calls and choice.mode != "named"
        return Constraint(opener, section, tuple(map(constrain_call, offered)), separator, many, free)

    return Format(
        name=fields["name"],
        model_families=fields["model_families"],
        source=fields["source"],
        read=read_reply,
        markers=markers,
        write_tools=tools_writer(section[0] + write_call(EXAMPLE) + section[1], markers, tools, result),
        write_call=write_call,
        write_result=lambda content, name: result.write(content, name, markers),
        constrain=constrain,
        section=section,
        separator=separator,
        first_call_marker=fields.get("first_call_marker", ""),
        calls=fields.get("calls", calls),
        reasoning_tags=reasoning_tags,
        reasoning_wrapper=reasoning_wrapper,
        markup=read if isinstance(read, Markup) else None,
        reasoning_markers=fields.get(
            "reasoning_markers", tuple(reasoning_tags) or tuple(filter(None, reasoning_wrapper[:1]))
        ),
        arguments=fields.get("arguments", "tagged"),
        id_prefix=fields.get("id_prefix"),
        aliases=fields.get("aliases", ()),
    )


def _readers(
    read: Markup | Channels | ReadReply,
) -> tuple[ReadReply, Mapping[str, ReadCall], Mapping[str, str]]:
    """Returns the reader of replies, the readers of calls by their openers, and the reasoning tags."""
    match read:
        case Markup():
            section = {read.section[0]: section_reader(read)} if read.section[0] else {}
            return reply_reader(read), {**read.calls, **section}, read.reasoning_tags
        case Channels():
            return read.read, dict.fromkeys(read.starts, read.read_on), {}
        case _:
            return read, {}, {}


def tools_writer(
    example: str, markers: Sequence[str], tool_list: ToolListMarkup, result: ToolResultMarkup
) -> Callable[[Sequence[Tool], ToolChoice], str]:
    """Returns the function that writes the tools, how to call them, and the tool-choice policy.

    Args:
        example: A call as the format writes it, shown in the instructions.
        markers: Strings to neutralise in the tools.
        tool_list: How the prompt lists the tools.
        result: How the prompt shows results.
    """
    head = _HEAD.format(unit="line" if tool_list.separator == "\n" else "object")
    instructions = _HOW.format(example=example, result=result.opener)

    def write_tools(tools: Sequence[Tool], choice: ToolChoice) -> str:
        offered = [t for t in tools if t.kind == "function"]
        if not offered or choice.mode == "none":
            return ""
        return f"{head}\n{tool_list.write(offered, markers)}\n\n{instructions}\n\n{_policy(choice)}"

    return write_tools


def object_or_string(arguments: JsonText) -> JsonText:
    """Returns the arguments verbatim, or as a JSON string if they are not a JSON object."""
    value = JsonStream()
    is_object = arguments.startswith("{") and value.feed(arguments, 0) == len(arguments) and value.done
    return value.drain() if is_object else json.dumps(arguments, ensure_ascii=False)


def _policy(choice: ToolChoice) -> str:
    match choice.mode:
        case "named":
            return f"Now you must request the tool {' '.join(choice.name.splitlines())}, once."
        case "required":
            return (
                "Now you must request at least one tool."
                if choice.parallel_tool_calls
                else "Now you must request one tool."
            )
        case _ if choice.parallel_tool_calls:
            return "For several tools at once, write several such requests, one after the other."
        case _:
            return "Request one tool at a time."
