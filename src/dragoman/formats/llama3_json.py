"""Llama 3: an untagged JSON object is the call.

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Written by Llama 3.1 to 3.3, and by Llama 4 when prompted for JSON. It has no opener, so it is a call only at the start
of a reply and if it begins as a call of an offered tool; other JSON is the answer. After `<|python_tag|>` it is a call
anywhere, and so are calls of built-in tools: `<|python_tag|>brave_search.call(query="Paris")`. Several calls are
separated by `; `. Also accepted: `arguments`, `function` for `name`, a JSON array.

Source: Meta's prompt format page of Llama 3.1; chat templates of meta-llama/Llama-3.1-8B-Instruct (2024-07),
Llama-3.2-3B and Llama-3.3-70B-Instruct, as in llama.cpp (2026-10). They reject several calls in one message.
"""

import json
from typing import Final

from dragoman.parsing.shapes.json_block import JsonBlock, json_calls_format
from dragoman.parsing.shapes.json_object import JsonCallKeys
from dragoman.parsing.sink import ToolCallSink
from dragoman.text.scanner import CUT_OFF, Parser, Scanner, markers

TAG: Final = "<|python_tag|>"
KEYS: Final = JsonCallKeys(("name", "function"), ("parameters", "arguments"))
BARE: Final = JsonBlock(KEYS, tagged=False)
TAGGED: Final = JsonBlock(KEYS)
_CALL: Final = markers(".call(")
_EQUALS: Final = markers("=")


def tagged(s: Scanner, sink: ToolCallSink, opener: str) -> Parser[bool]:
    """Reads what follows the tag: JSON, a call of a built-in tool, or code."""
    if (yield from s.peek(after_space=True)) in ("{", "["):
        return (yield from TAGGED.read(s, sink, opener))
    s.start_capture(s.skipped_space + opener)
    yield from s.skip_space()
    head = yield from s.field(_CALL)
    name = sink.resolve(head[0]) if head else None
    if name is None:
        if head:
            sink.warn("unknown_tool", f"the model called {head[0]!r}, which is not an offered tool")
        sink.text(s.captured())
        s.stop_capture()
        return False
    sink.start(name)
    problem = yield from _keywords(s, sink)
    if problem:
        sink.incomplete(s.captured())
    else:
        sink.end()
    if problem and problem != CUT_OFF:
        sink.warn("malformed_arguments", problem, s.captured())
        sink.text(s.captured())
    s.stop_capture()
    return not problem


def _keywords(s: Scanner, sink: ToolCallSink) -> Parser[str]:
    """Reads `key="value", …)` with JSON values. Returns "" or the reason why it is invalid."""
    before = "{"
    if (yield from s.literal(")", after_space=True)):
        sink.arguments("{}")
        return ""
    while True:
        key = yield from s.field(_EQUALS)
        if key is None:
            return CUT_OFF if s.consume_truncated("") or s.closed else "expected an argument's name"
        sink.arguments(f"{before}{json.dumps(key[0].strip(), ensure_ascii=False)}: ")
        problem = yield from s.json_value(sink.arguments)
        end = "" if problem else (yield from s.literal(",", ")", after_space=True))
        if not end:
            return problem or (CUT_OFF if s.closed else "expected ',' or ')'")
        if end == ")":
            sink.arguments("}")
            return ""
        before = ", "


FORMAT: Final = json_calls_format(
    name="llama3_json",
    model_families="Llama 3.1 to 3.3, Llama 4",
    source="chat templates of Llama 3.1 (2024-07), 3.2 and 3.3, as llama.cpp has them (2026-10)",
    aliases=("llama3", "llama4_json"),
    blocks={TAG: ""},
    keys=KEYS,
    separator="; ",
    reasoning_tags={},
    keep_whitespace=True,
    untagged_calls={"{": BARE.read, "[": BARE.read},
    other={TAG: tagged},
    opener='{"name": ',
)
