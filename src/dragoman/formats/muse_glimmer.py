"""Muse Glimmer: messages to recipients; a message to a tool contains calls that are named in attributes.

    <|start|>assistant to=self<|message|>They want the weather.<|eom|>
    <|start|>assistant to=get_weather<|message|><atem:function_calls>
    <atem:invoke name="get_weather">
    <atem:parameter name="city">Paris</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eot|>

A message to `self` is reasoning, a message to `user` is text. An invocation in either is not a call, unless a message
to the user, or without a recipient, begins with it. The prompt ends with `<|start|>assistant`. Also accepted: a doubled
name, `get_weather.get_weather`; calls outside a section.

Source: muse-glimmer.jinja of llama.cpp (2026-10); vLLM 0.33's parser muse_glimmer.
"""

import re
from dataclasses import replace
from typing import Final

from dragoman.parsing.channels import ANYTHING, ChannelRoute, Channels, read_recipient
from dragoman.parsing.define_format import text_format
from dragoman.parsing.shapes.invoke_tags import InvokeTags
from dragoman.parsing.shapes.name_then_json import CallHead
from dragoman.parsing.shapes.tagged import WrappedCalls
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.tool_markup import ToolResultMarkup
from dragoman.text.scanner import Parser, Scanner

START, MESSAGE, ENDS = "<|start|>", "<|message|>", ("<|eom|>", "<|eot|>")
TAGS: Final = InvokeTags(
    call=("<atem:invoke", "</atem:invoke>"),
    parameter=("<atem:parameter", "</atem:parameter>"),
    section=("<atem:function_calls>", "</atem:function_calls>"),
)
_HEADER = re.compile(r"\s*(?:<\|start\|>\s*assistant\b)?\s*(?:to=([^\s<]+))?\s*")
_TAGGED: Final = TAGS.tagged()


def route(header: str, _: str) -> ChannelRoute | None:
    """Routes a message by its recipient."""
    match = _HEADER.fullmatch(header)
    if not match:
        return None
    return ChannelRoute("reasoning" if match[1] == "self" else "text" if match[1] in (None, "user") else "call")


def head(s: Scanner, opener: str) -> Parser[CallHead | None]:
    """Reads the name in the invocation's tag; a doubled name is returned once."""
    call_head = yield from _TAGGED.head(s, opener)
    if not call_head:
        return None
    call_head = call_head._replace(name=call_head.name.partition(MESSAGE)[0].strip())
    namespace, _, name = call_head.name.rpartition(".")
    return call_head._replace(name=name) if name == namespace else call_head


def read_calls(s: Scanner, sink: ToolCallSink, header: str) -> Parser[bool]:
    """Reads the body of a message to a tool."""
    opened = yield from s.literal(TAGS.section[0], after_space=True)
    s.skipped_space = header
    is_complete = yield from _CALLS.read(s, sink, opened)
    while is_complete and (marker := (yield from s.literal(TAGS.section[1], TAGS.call[1], after_space=True))):
        sink.warn("stray_closing_tag", f"dropped {marker} that closes nothing", marker)
    return is_complete


def call_wrapper(name: str) -> tuple[str, str]:
    """Returns the text before and after the parameters: a message to the tool."""
    opened, closed = TAGS.written_section
    before, after = TAGS.writer.call_wrapper(name)
    return f" to={name}{MESSAGE}{opened}{before}", f"{after}{closed}"


WRITER: Final = replace(TAGS.writer, call_wrapper=call_wrapper)
_CALLS: Final = WrappedCalls(replace(_TAGGED, head=head).read, TAGS.openers, TAGS.section[1])
MARKUP: Final = Channels(
    starts=(START,),
    bodies=(MESSAGE,),
    route=route,
    call=read_calls,
    ends=dict.fromkeys(ENDS, ANYTHING),
    breaks=(START,),
    read_opened_header=read_recipient,
    blocks=(TAGS.section[0], *TAGS.openers),
)

FORMAT: Final = text_format(
    name="muse_glimmer",
    model_families="Muse Glimmer",
    source="muse-glimmer.jinja of llama.cpp (2026-10)",
    read=MARKUP,
    write_call=WRITER.write_call,
    constrain_call=WRITER.constrain_call,
    opener="",
    reasoning_wrapper=(f" to=self{MESSAGE}", f"{ENDS[0]}{START}assistant"),
    reasoning_markers=("to=self",),
    markers=(START, MESSAGE, *ENDS, *TAGS.markers()),
    separator=f"{ENDS[0]}{START}assistant",
    result=ToolResultMarkup('<tool_output name="{name}">\n', "\n</tool_output>"),
    aliases=("muse",),
)
