"""Calls that a model writes as plain JSON where its format requires tags: untagged, or in a code fence.

    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Small models write most of their calls this way. They are accepted only in lenient reading, at the start of a reply, and
if the name is that of an offered tool. `tag` is the format's own pair of tags around a call, which may be present too.
"""

import re
from functools import cache
from typing import Final, TypeAlias

from dragoman.core.errors import quote
from dragoman.parsing.shapes.json_object import JsonCallKeys, Outcome, read_json_call, skip_unknown_call
from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE, read_fence_lines, read_fence_open, read_fenced_block
from dragoman.text.scanner import Parser, Scanner

Tag: TypeAlias = tuple[str, str]
NO_TAG: Final = ("", "")
_KEYS: Final = JsonCallKeys()
_LISTED_CHARS: Final = 64
"""An array's first object begins within this many characters."""


@cache
def _named(opener: str) -> "re.Pattern[str]":
    return re.compile(rf'{re.escape(opener)}\s*\{{+\s*"name"\s*:\s*"([^"\\]+)"')


def read_untagged_calls(s: Scanner, sink: ToolCallSink, tag: Tag = NO_TAG) -> Parser[bool]:
    """Reads calls without their tags at the start of the reply. Returns True if text came last."""
    while (yield from _begins(s)):
        s.start_capture()
        fence = yield from read_fence_open(s)
        if fence and sink.calls and not (yield from s.peek(after_space=True)):
            # Qwen2.5-Coder 1.5B under Claude Code writes a closing fence after a call without an opening one.
            sink.warn("stray_closing_tag", f"dropped {FENCE} that closes nothing", FENCE)
            s.stop_capture()
            return False
        is_complete = yield from read_fenced_calls(s, sink, fence, tag) if fence else _calls(s, sink, tag)
        s.stop_capture()
        if not is_complete:
            return True
    return False


def _begins(s: Scanner) -> Parser[bool]:
    """Returns True if an object, an array of objects, or a fence comes next."""
    count = 1
    while (upcoming := (yield from s.peek(count, after_space=True))).startswith("[") and count <= _LISTED_CHARS:
        if len(upcoming) < count or upcoming[1:].strip():
            return upcoming.endswith("{")
        count += 1
    return upcoming in ("{", "`")


def _calls(s: Scanner, sink: ToolCallSink, tag: Tag) -> Parser[bool]:
    """Reads one call, or an array of calls. Returns True if there was nothing else."""
    if not (yield from s.literal("[", after_space=True)):
        return (yield from _bare_call(s, sink, tag))
    sink.set_in_list(True)
    s.calls_in_array = True
    while (is_complete := (yield from _bare_call(s, sink, tag))) and (yield from _next_in_list(s, sink)):
        pass
    s.calls_in_array = False
    if not s.truncated:
        sink.set_in_list(False)
    return is_complete


def _next_in_list(s: Scanner, sink: ToolCallSink) -> Parser[bool]:
    """Returns True if another call comes in an array, with or without a comma; otherwise reads the array's end."""
    s.start_capture()
    comma = yield from s.literal(",", after_space=True)
    if (yield from s.peek(after_space=True)) == "{":
        return True
    if not (yield from s.literal("]", after_space=True)):
        if not s.consume_truncated("]"):
            sink.warn("missing_closing_tag", "expected ] after the call")
        sink.text(s.captured() if comma else "")
    return False


def read_fenced_calls(
    s: Scanner, sink: ToolCallSink, fence: int, tag: Tag = NO_TAG, tagged: bool = False
) -> Parser[bool]:
    """Reads calls in a code fence. Returns True if it contains nothing else.

    Args:
        s: The scanner, after the backticks, which have been captured.
        sink: Receives the calls.
        fence: Number of the backticks.
        tag: The tags around a call.
        tagged: Whether the fence is inside such tags.
    """
    yield from s.literal("json", "tool_call", "xml")
    first = True
    while (yield from read_one_call(s, sink) if tagged else _calls(s, sink, tag)):
        first = False
        s.start_capture()
        if (yield from read_fence_open(s)) or not (yield from s.peek(after_space=True)):
            return True
        if tagged and (yield from s.peek(len(tag[1]), after_space=True)) == tag[1]:
            return True
    captured = s.captured()
    if first and "\n" not in captured:
        closed = yield from read_fenced_block(s, sink.text, fence, tag[0])
    else:
        in_line = not captured or bool(captured.rpartition("\n")[2].strip())
        closed = yield from read_fence_lines(s, sink.text, fence, tag[0], in_line)
    warn_about_quoted_calls(s, sink, closed, tag)
    return False


def _bare_call(s: Scanner, sink: ToolCallSink, tag: Tag) -> Parser[bool]:
    """Reads one call with or without its tags. Returns True if it is one."""
    tagged = yield from s.literal(tag[0], after_space=True)
    is_complete = yield from read_one_call(s, sink, bool(tagged))
    if is_complete and not tagged:
        yield from drop_stray_brace(s, sink)
        sink.warn("untagged_call", "took a call without the tags of its format")
    if is_complete and tagged:
        yield from s.literal(tag[1], after_space=True)
    return is_complete


def read_one_call(s: Scanner, sink: ToolCallSink, tagged: bool = True) -> Parser[bool]:
    """Reads one call object; calls of unknown tools before it are text. Returns True if the call is complete.

    If it is not a call, the captured text is emitted as text.
    """
    while (outcome := (yield from read_json_call(s, sink, _KEYS, tagged, reads_unknown=tagged))) is Outcome.UNKNOWN:
        if not (yield from skip_unknown_call(s, sink)):
            break
    if outcome is Outcome.NOT_A_CALL and s.truncated and tagged:
        sink.warn("truncated_call", "the reply was cut off before the call had a name", s.captured())
    elif outcome in (Outcome.NOT_A_CALL, Outcome.UNKNOWN, Outcome.BROKEN):
        sink.text(s.captured())
    return outcome is Outcome.COMPLETE


def drop_stray_brace(s: Scanner, sink: ToolCallSink) -> Parser[None]:
    """Drops a surplus closing brace, which small models often write."""
    if (yield from s.literal("}", after_space=True)):
        sink.warn("stray_closing_tag", "dropped } that closes nothing", "}")


def warn_about_quoted_calls(s: Scanner, sink: ToolCallSink, closed: bool, tag: Tag) -> None:
    """Warns about a call in code that is never closed: it may have been meant as a call.

    Args:
        s: The scanner, which has captured the code.
        sink: Receives the warning.
        closed: Whether the code was closed; then nothing is reported.
        tag: The tags around a call.
    """
    for call in () if closed or not tag[0] else _named(tag[0]).finditer(s.captured()):
        if sink.resolve(call[1]):
            sink.warn(
                "call_in_unclosed_code", f"a call of {quote(call[1])} in code that nothing closes stays text", call[0]
            )
            return
