"""Calls in code fences at the end of a reply, after the model's own words.

    I will look that up.
    ```json
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    ```

Small models ask for tools this way. A fence shows an example as long as text follows it, so it is held until the reply
ends: it is a call only where it names an offered tool and nothing but such fences follows.
"""

import re
from typing import Final, NamedTuple

from dragoman.core.bare import NO_TAG, Tag, bare_calls
from dragoman.core.contracts import CallSink
from dragoman.core.errors import quote
from dragoman.core.fence import FENCE
from dragoman.core.scanner import Leaf, Scanner

HEAD_CHARS: Final = 256
"""Characters of a fence within which it names the tool."""
_HEAD: Final = re.compile(r'`{3,}[\w-]*\s*[\[{]{1,2}\s*\{?\s*"name"\s*:\s*"([^"\\\n]{1,128})"')
_BEGUN: Final = re.compile(
    r'(?:`{1,}[\w-]*\s*(?:[\[{]{1,2}\s*\{?\s*(?:"(?:n(?:a(?:m(?:e(?:"\s*(?::\s*(?:"[^"\\\n]{0,128})?)?)?)?)?)?)?)?)?)\Z'
)
_CLOSE: Final = re.compile(r"\n[ \t]*`{3,}[ \t]*(?=[\r\n]|\Z)")
_SPACE: Final = " \t\r\n"


class _Ahead(NamedTuple):
    """What was seen of the rest of the reply."""

    is_last: bool
    name: str = ""
    """The tool of the first fence, where that is a whole call."""


def last_fence(s: Scanner, sink: CallSink, tag: Tag = NO_TAG) -> Leaf[bool]:
    """Read the calls in fences that end the reply, the scanner standing before the first; whether there are any."""
    ahead = _Ahead(False) if s.shows else (yield from _look(s, sink))
    if ahead.is_last:
        sink.warn("fenced_call", "took a call in a code fence at the end of the reply", s.buf[s.pos :])
        yield from bare_calls(s, sink, tag)
    elif ahead.name:
        s.shows = True
        told = (
            f"a call of {quote(ahead.name)} in a code fence stays text, as text follows it; "
            "tool_choice required, or `constrain` of the server's settings, makes it a call"
        )
        sink.warn("call_in_code", told)
    return ahead.is_last


def _look(s: Scanner, sink: CallSink) -> Leaf[_Ahead]:
    """Look at the rest of the reply, as far as it has to be known."""
    first = ""
    at = 0  # from where the scanner stands
    while True:  # a fence begins here
        while not (head := _HEAD.match(s.buf, s.pos + at)):
            rest = s.buf[s.pos + at : s.pos + at + HEAD_CHARS + 1]
            if s.closed or len(rest) > HEAD_CHARS or not _BEGUN.match(rest):
                return _Ahead(False, first)
            yield None
        if sink.resolve(head[1]) is None:
            return _Ahead(False, first)
        at = yield from _behind(s, head.end() - s.pos)
        first = first or head[1]
        if at < 0:
            return _Ahead(s.stopped, first)
        while not (rest := s.buf[s.pos + at : s.pos + at + HEAD_CHARS].lstrip(_SPACE)):
            if s.closed:
                return _Ahead(s.stopped, first)
            if len(s.buf) - s.pos - at >= HEAD_CHARS:
                return _Ahead(False, first)
            yield None
        if not rest.startswith(FENCE[0]):
            return _Ahead(False, first)
        at = s.buf.index(rest[0], s.pos + at) - s.pos


def _behind(s: Scanner, at: int) -> Leaf[int]:
    """Where the fence ends whose head ends there; -1 where the reply ends before it."""
    while True:
        close = _CLOSE.search(s.buf, s.pos + at)
        if close and (s.closed or close.end() < len(s.buf)):
            return close.end() - s.pos
        if s.closed:
            return -1
        line = s.buf.rfind("\n", s.pos + at)
        at = (line if line >= 0 else len(s.buf)) - s.pos
        yield None
