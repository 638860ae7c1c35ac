"""xLAM: an untagged JSON array of calls.

    [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": {}}]

Written by xLAM 1 and 2. It has no opener, so it is read as calls only at the start of a reply, after any reasoning, and
if its first object begins as a call of an offered tool. Also accepted: the array in a code fence, in
`<tool_call>…</tool_call>`, after `[TOOL_CALLS]`; a single object without an array; `{"tool_calls": […]}`, which a reply
constrained by `constraints/reply_schema.py` is.

Source: tool_chat_template_xlam_llama.jinja of vLLM (2025-06); Salesforce's own template was not available.
"""

from typing import Final

from dragoman.parsing.shapes.json_block import KEYS, JsonBlock, json_calls_format
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE, read_fence_open
from dragoman.text.scanner import Parser, Scanner, markers

TOKEN: Final = "[TOOL_CALLS]"
BARE: Final = JsonBlock(KEYS, tagged=False)
FENCED: Final = JsonBlock(KEYS, FENCE, tagged=False)
MEMBER: Final = '{"tool_calls":'
WRAPPED: Final = JsonBlock(KEYS, "}", tagged=False)


def listed(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
    """Reads an array at the start of the reply, with or without the token."""
    s.start_capture()
    if (yield from s.literal(TOKEN, after_space=True)):
        return (yield from JsonBlock(KEYS).read(s, sink, s.captured()))
    return (yield from BARE.read(s, sink, ""))


def wrapped(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
    """Reads a call at the start of the reply, or an object that contains an array of calls."""
    first = yield from s.peek_field(markers(":"))
    if not first or "".join("".join(first).split()) != MEMBER:
        return (yield from BARE.read(s, sink, ""))
    s.start_capture()
    yield from s.literal("".join(first))
    return (yield from WRAPPED.read(s, sink, s.captured()))


def fenced(s: Scanner, sink: ToolCallSink, _: str) -> Parser[bool]:
    """Reads calls in a code fence at the start of the reply."""
    s.start_capture()
    if (yield from read_fence_open(s)):
        yield from s.literal("json")
    return (yield from FENCED.read(s, sink, s.captured()))


FORMAT: Final = json_calls_format(
    name="xlam",
    model_families="xLAM 1 and 2",
    source="tool_chat_template_xlam_llama.jinja of vLLM (2025-06)",
    blocks={"<tool_call>": "</tool_call>", TOKEN: ""},
    section=("[", "]"),
    opener='[{"name": ',
    untagged_calls={"[": listed, "{": wrapped, "`": fenced},
)
