"""Calls in plain JSON at the end of a reply, after the model's own text, in a code fence or untagged.

    I will look that up.
    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Small models call tools this way. If text follows, the same JSON is an example, so it is buffered until the reply ends:
it is a call only if it names an offered tool and only such calls follow. The format's closing markers (`ends`) may
follow them.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from dragoman.core.errors import quote
from dragoman.core.events import Notice
from dragoman.parsing.sink import ForwardingSink, ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE
from dragoman.parsing.untagged.untagged_json import NO_TAG, Tag, read_untagged_calls
from dragoman.text.scanner import SPACE, Parser, Scanner

OBJECTS: Final = ("\n{", "\n[{", "\n[\n")
"""Beginnings of an untagged object or array at the start of a line."""
STARTS: Final = (FENCE, *OBJECTS)
MAX_HEAD_CHARS: Final = 256
"""The tool's name must appear within this many characters of a fence or an object."""
FIRST: Final = (FENCE[0], "{", "[")
"""The first characters of such calls."""
CODES: Final = ("fenced_call", "trailing_call")
"""The warnings for accepted calls."""
_LAST, _OPEN = -1, -2
"""Instead of an offset: the reply ends here, after a closing bracket (`_LAST`) or not (`_OPEN`)."""
CHANGES: Final = 'tool_choice required, or tool_mode = "prompt" of a server that constrains decoding, makes it a call'

_HEAD: Final = re.compile(
    r'(?:`{3,}[\w-]*)?\s*\[?\s*\{{1,2}\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\\n]{1,128})"'
)
_OPENS: Final = re.compile(r"`{3,}[\w-]*|`{1,2}\Z|(?=[\[{]|\Z)")
_HEADS: Final = tuple(
    f'{opener}{kind}"name":"' for opener in ("{", "{{", "[{", "[{{") for kind in ("", '"type":"function",')
)
"""The text of a head before the name, without white space."""
_CLOSE: Final = re.compile(r"\n[ \t]*`{3,}[ \t]*(?=[\r\n]|\Z)")
_CLOSE_BEGUN: Final = re.compile(r"\n[ \t]*+`*+[ \t]*+\Z")
_TURNS: Final = re.compile(r'[\[{}\]"]|\\.?', re.DOTALL)


class _Lookahead(NamedTuple):
    """Result of looking ahead at the rest of the reply."""

    is_last: bool
    name: str = ""
    """The tool of the first call, if that is complete."""


class _GapSink(ForwardingSink):
    """Holds white space back, which is emitted only if text comes first."""

    def __init__(self, sink: ToolCallSink, gap: str) -> None:
        self.sink, self._gap = sink, gap

    def end(self, id: str = "") -> None:
        """Ends a complete call: the white space before it is not text."""
        self._gap = ""
        self.sink.end(id)

    def text(self, text: str) -> None:
        """Adds text that is not a call."""
        self.sink.text(self._gap + text)
        self._gap = ""


def read_trailing_calls(
    s: Scanner, sink: ToolCallSink, gap: str, ends: Collection[str], tag: Tag = NO_TAG
) -> Parser[bool | None]:
    """Reads the calls that end the reply.

    Returns True if text came last, None if there is no call.

    Args:
        s: The scanner, before the first call.
        sink: Receives the calls.
        gap: White space that was read before the first call.
        ends: Markers that may follow the last call.
        tag: The tags around a call.
    """
    first = s.buf[s.pos]
    upcoming = _Lookahead(False) if s.shows_examples else (yield from _look(s, sink, ends))
    if upcoming.is_last:
        warning = call_recognized_warning(first, gap + s.buf[s.pos :])
        sink.warn(warning.code, warning.message, warning.raw)
        has_calls = yield from read_untagged_calls(s, _GapSink(sink, gap), tag)
        if not has_calls:
            yield from s.skip_space()
        return has_calls
    if upcoming.name:
        s.shows_examples = True
        warning = call_left_warning(first, "text follows it", upcoming.name)
        sink.warn(warning.code, warning.message)
    return None


def call_recognized_warning(first: str, raw: str) -> Notice:
    """Returns the warning that calls which begin with the character `first`, and have the text `raw`, were accepted."""
    if first == FENCE[0]:
        return Notice("fenced_call", "recovered a call in a code fence at the end of the reply", raw)
    return Notice("trailing_call", "recovered a call in plain JSON at the end of the reply", raw)


def call_left_warning(first: str, why: str, name: str = "", raw: str = "") -> Notice:
    """Returns the warning that a call stays text.

    Args:
        first: The character with which the call begins: a brace, a bracket or a backtick.
        why: The reason, as a clause after "as".
        name: The tool, if it is known.
        raw: The text of the call.
    """
    call = f"a call of {quote(name)}" if name else "a call"
    if first == FENCE[0]:
        return Notice("call_in_unclosed_code", f"{call} in a code fence stays text, as {why}; {CHANGES}", raw)
    return Notice("call_in_text", f"{call} in plain JSON stays text, as {why}; {CHANGES}", raw)


def _look(s: Scanner, sink: ToolCallSink, ends: Collection[str]) -> Parser[_Lookahead]:
    """Looks ahead in the rest of the reply, as far as needed."""
    first = ""
    at = 0  # offset from the scanner's position
    while at >= 0:  # a call begins here
        head = yield from _head(s, at)
        if not head or sink.resolve(head[1]) is None:
            return _Lookahead(False, first)
        is_fence = head[0].startswith(FENCE)
        at = yield from (_after_fence(s, head.end() - s.pos) if is_fence else _after_object(s, at))
        first = first or head[1]
        if at >= 0:
            next_at = yield from _next(s, at, (*ends, "}"))
            if next_at is None:
                return _Lookahead(False, first)
            at = next_at
    return _Lookahead(s.stopped_by_model and at == _LAST, first)


def _head(s: Scanner, at: int) -> Parser["re.Match[str] | None"]:
    """Reads the head of a call up to the tool's name, if there is one at this offset."""
    while not (head := match_call_head(s.buf, s.pos + at)):
        if s.closed or not may_become_call_head(s.buf, s.pos + at):
            return None
        yield None
    return head


def match_call_head(text: str, at: int) -> "re.Match[str] | None":
    """Returns the match of a call's head, up to the tool's name, at this position."""
    return _HEAD.match(text, at, at + MAX_HEAD_CHARS)


def may_become_call_head(text: str, at: int) -> bool:
    """Returns True if the text at this position may become the head of a call."""
    rest = text[at : at + MAX_HEAD_CHARS]
    opened = _OPENS.match(rest)
    if not opened or len(rest) == MAX_HEAD_CHARS:
        return False
    head_text = "".join(rest[opened.end() :].split())
    return any(head.startswith(head_text) or head_text.startswith(head) for head in _HEADS)


def _after_fence(s: Scanner, at: int) -> Parser[int]:
    """Returns the offset after the fence whose head ends at `at`; `_LAST` if the reply ends before it."""
    while True:
        close = _CLOSE.search(s.buf, s.pos + at)
        if close and (s.closed or close.end() < len(s.buf)):
            return close.end() - s.pos
        if s.closed:
            return _LAST
        partial_close = _CLOSE_BEGUN.search(s.buf, s.pos + at)
        at = (partial_close.start() if partial_close else len(s.buf)) - s.pos
        yield None


def _after_object(s: Scanner, at: int) -> Parser[int]:
    """Returns the offset after the object or array that begins at `at`; `_LAST` or `_OPEN` if the reply ends first."""
    depth, quoted, end = 0, False, -1
    while end < 0:
        depth, quoted, end, read = _brackets(s.buf, s.pos + at, depth, quoted)
        at = read - s.pos
        if end < 0 and s.closed:
            return _OPEN if quoted or s.buf.rstrip(SPACE)[-1] not in "}]" else _LAST
        if end < 0:
            yield None
    return end - s.pos


def _brackets(text: str, at: int, depth: int, quoted: bool) -> tuple[int, bool, int, int]:
    """Counts brackets up to the text's end.

    Returns the depth, whether within a string, the end of the last closed bracket or -1, and the offset read to.
    """
    turn = ""
    for match in _TURNS.finditer(text, at):
        turn = match[0]
        if turn == '"':
            quoted = not quoted
        elif not quoted and turn[0] != "\\":
            depth += 1 if turn in "[{" else -1
            if depth == 0:
                return depth, quoted, match.end(), match.end()
    return depth, quoted, -1, len(text) - (turn == "\\")


def _next(s: Scanner, at: int, ends: Collection[str]) -> Parser[int | None]:
    """Returns the offset of the next call, `_LAST` if only `ends` follow, None if anything else follows."""
    ended = False
    while True:
        upcoming = s.buf[s.pos + at : s.pos + at + MAX_HEAD_CHARS]
        rest = upcoming.lstrip(SPACE)
        end = max((end for end in ends if rest.startswith(end)), key=len, default="")
        if end and (s.closed or len(rest) > len(end)):
            at += len(upcoming) - len(rest) + len(end)
            ended = ended or end != "}"
        elif s.closed and any(end.startswith(rest) for end in ("", *ends)):
            return _LAST
        elif rest and not any(end.startswith(rest) for end in ends):
            return at + len(upcoming) - len(rest) if rest[0] in FIRST and not ended else None
        elif s.closed or len(upcoming) == MAX_HEAD_CHARS:
            return None
        else:
            yield None
