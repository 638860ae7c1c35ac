"""Auto: detects the format of a reply from its markers.

Searches for the openers of all formats at once. Where several formats share an opener, the next character decides:
after `<tool_call>` a brace is Hermes, a tag Qwen3-Coder, a name GLM. After the first call, the rest of the reply is
read in that format. Without an opener, Python calls are recognised at the start of a reply, and untagged JSON in
lenient reading; so is the rest of a message header that the prompt has begun, for Muse Glimmer and Functionary. Tools
and past calls are written as in Hermes, results with the id and name of their call.

Source: the other formats.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final

from dragoman import formats
from dragoman.parsing.define_format import EXAMPLE, tools_writer
from dragoman.parsing.format import Format
from dragoman.parsing.markup import Markup
from dragoman.parsing.markup.reply import read_rest, reply_reader
from dragoman.parsing.shapes.python_call import BARE_CALLS, PythonCalls
from dragoman.parsing.shapes.python_dicts import PythonObjects
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.tool_markup import RESULT, TOOLS
from dragoman.text.scanner import Parser, Scanner

SHARED: Final[Mapping[str, Mapping[str, str]]] = {
    "<tool_call>": {"{": "hermes", "[": "hermes", "`": "hermes", "<": "qwen3_xml", "": "glm"},
    "<tool_calls>": {"<": "hy_v3", "{": "minimax_m1", "": "jamba"},
    "<longcat_tool_call>": {"{": "longcat", "[": "longcat", "": "longcat_xml"},
    "[TOOL_CALLS]": {"[": "mistral_v3", "{": "mistral_v3", "": "mistral"},
    "<|tool_call|>": {"": "phi4_mini"},
    "```tool_code": {"": "pythonic"},
    "<|tool_calls|>": {"<": "solar", "": "sarashina"},
    "<function=": {"": "qwen3_xml"},
    "<|start|>": {"": "harmony"},
    "<|channel|>": {"": "harmony"},
    "<｜DSML｜invoke ": {"": "deepseek_v32"},
    "<｜DSML｜invoke\n": {"": "deepseek_v32"},
    "<｜DSML｜function_calls>": {"": "deepseek_v32"},
    "<｜DSML｜tool_calls>": {"": "deepseek_v4"},
}
"""For openers that several formats share: the format by the next character after white space; "": any other."""


_HEADER: Final = re.compile(
    r"\s{0,9}(?:(?:<\|start\|>assistant\s)?(?P<to>to=[^\s<]{1,128}<\|message\|>)"
    r"|(?P<shown>>>>)?(?P<name>[\w.-]{0,127}\w)\n(?:(?P<content><\|content\|>)|\s{0,20}\{))"
)
_MAY_BE_HEADER: Final = re.compile(
    r"\s{0,9}(?:(?:<[|start]{0,7}>?a?[sitan]{0,8}\s?)?(?:t|to=?|to=[^\s<]{0,128}(?:<[|mesag>]{0,10})?)?"
    r"|>{0,3}[\w.-]{0,128}(?:\n(?:\s{0,20}|<[|conte]{0,10}))?)"
)
"""Matches the beginning of a header."""


@cache
def _others() -> tuple[Format, ...]:
    return tuple(format for format in formats.built_in() if format.name != "auto")


@cache
def markup() -> Markup:
    """Returns the markers of all formats together."""
    known = [format.markup for format in _others() if format.markup]
    return Markup(
        calls={opener: _read_call for format in _others() for opener in format.calls},
        reasoning_tags={opener: closer for format in _others() for opener, closer in format.reasoning_tags.items()},
        ignored_wrappers=_merge_groups(m.ignored_wrappers for m in known),
        boxes=_merge_groups(m.boxes for m in known),
        answer_wrappers={opener: closer for m in known for opener, closer in m.answer_wrappers.items()},
        untagged_calls={"[": _listed, **BARE_CALLS},
        example_tag=next(m.example_tag for m in known if m.example_tag[0]),
    )


def _merge_groups(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in several for each in some))


def _listed(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads a list at the start of the reply: of dicts in the form of Sarashina, or of Python calls."""
    dicts = (yield from s.peek(3, after_space=True)) == "[{'"
    return (yield from (PythonObjects(tagged=False) if dicts else PythonCalls()).read(s, sink, opener))


def read(s: Scanner, sink: ToolCallSink) -> Parser[None]:
    """Reads one reply."""
    name = yield from _opened_by_prompt(s, sink)
    if name:
        sink.note("format", name)
        yield from formats.get(name).read(s, sink)
    else:
        yield from reply_reader(markup())(s, sink)


def _opened_by_prompt(s: Scanner, sink: ToolCallSink) -> Parser[str]:
    """Returns the format whose message header, begun by the prompt, continues here; "" if there is none.

    A recipient indicates Muse Glimmer; a line with the name of an offered tool, then an object or a token, Functionary.
    """
    while not (match := _HEADER.match(s.buf, s.pos)):
        if s.closed or not _MAY_BE_HEADER.fullmatch(s.buf, s.pos):
            return ""
        yield None
    if match["to"]:
        return "muse_glimmer"
    if match["name"] != "all" and sink.resolve(match["name"]) is None:
        return ""
    if not (match["shown"] or match["content"]) and sink.resolve(" ") is not None:
        return ""  # any name is accepted, so any word would match
    return "functionary_v2" if match["content"] else "functionary_v32" if match["name"] != "all" else ""


def _read_call(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads a call. After a call has begun, the format is known, and its reader reads the rest of the reply."""
    format = yield from _format_of(s, sink, opener)
    if format.markup and format.markup.keep_whitespace:
        s.pos -= len(opener)
        sink.text(s.skipped_space)
        s.pos += len(opener)
        s.skipped_space = ""
    before = sink.calls
    is_complete = yield from format.calls[opener](s, sink, opener)
    rest = _rest(format.name)
    if sink.calls > before and rest:
        yield from read_rest(rest, s, sink, not is_complete)
    return is_complete


def _format_of(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[Format]:
    if opener in SHARED:
        by_next = SHARED[opener]
        name = by_next.get((yield from s.peek(after_space=True)), by_next[""])
    else:
        name = next(format.name for format in _others() if opener in format.calls)
    sink.note("format", name)
    return formats.get(name)


@cache
def _rest(name: str) -> Markup | None:
    """Returns a format's own markers. Formats that share an opener stay mixed, because models mix them."""
    own = formats.get(name).markup
    return own and replace(own, calls={o: _shared if o in SHARED else read for o, read in own.calls.items()})


def _shared(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    format = yield from _format_of(s, sink, opener)
    return (yield from format.calls[opener](s, sink, opener))


HERMES: Final = formats.get("hermes")
OTHERS: Final = (
    *(
        "<tool_call",
        "</tool_call",
        "<tool_response",
        "<arg_",
        "</arg_",
        "<tool_sep",
        "<cofl:",
        "</cofl:",
        "<｜",
        "</｜",
    ),
    *("<steptml:", "</steptml:", "<atem:", "</atem:", "<rfl:", "</rfl:", "<minimax:", "</minimax:", "<ifm|", "</ifm|"),
    *("<dots_function_", "</dots_function_", "<start_function_", "<end_function_", "<escape>", "<function_"),
    *("</function_call", "<function=", "</function_invocation>", "<parameter=", "<iquest", "</iquest"),
    *("<use_mcp_tool", "</use_mcp_tool", "<function name=", "<longcat_", "</longcat_", "</seed:tool_call", "<tool:"),
    *("</tool>", "<tool_output", "</tool_output", "<TOOLCALL>", "</TOOLCALL>", "<TOOL_RESPONSE>", "</TOOL_RESPONSE"),
    *("[ARGS]", "[CALL_ID]", "```tool_code", "**Tool Call:**", "functools[", "Action: ```json", "Action:```json"),
    *("Action:\n```json",),
)
"""Markers of calls and results of all formats, without control tokens and strings that occur in ordinary text."""

FORMAT: Final = replace(
    HERMES,
    name="auto",
    model_families="any",
    source="the other formats",
    read=read,
    calls={},
    reasoning_tags={},
    markup=None,
    aliases=(),
    markers=(*HERMES.markers, *OTHERS),
    write_tools=tools_writer(HERMES.write_call(EXAMPLE), (*HERMES.markers, *OTHERS), TOOLS, RESULT),
    write_result=partial(RESULT.write, markers=(*HERMES.markers, *OTHERS)),
)
