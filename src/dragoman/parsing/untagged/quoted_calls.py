"""Calls that a text quotes in code: examples, which must not be run.

    Write it like this: ```<tool_call>{"name": "ping", "arguments": {}}</tool_call>```, then wait.

A code block begins with a fence at the start of a line, with any indentation. Other backticks are text, unless a call
directly follows them.
"""

import re
from collections.abc import Iterable

from dragoman.parsing.sink import ToolCallSink
from dragoman.parsing.untagged.code_fence import FENCE, read_fenced_block
from dragoman.parsing.untagged.untagged_json import Tag, warn_about_quoted_calls
from dragoman.text.scanner import Parser, Scanner, markers


def starts_line(s: Scanner, line: int) -> bool:
    """Returns True if the fence that was just found is at the start of a line; `line` as in `QuotedCallReader.read`."""
    return "\n" in s.skipped_space or s.offset == line + len(s.skipped_space) + len(FENCE)


class QuotedCallReader:
    """Finds quoted calls in a text whose markers include FENCE and the openers of calls; `tag` is the pair of tags
    around a call."""

    def __init__(self, s: Scanner, sink: ToolCallSink, openers: Iterable[str], tag: Tag) -> None:
        self._s, self._sink, self._tag = s, sink, tag
        self._directly_after = re.compile(rf"`{{3,}}[\w+-]*\s*(?:{'|'.join(map(re.escape, openers))})")
        self._quoting = False  # whether backticks within a line are open; the text is kept since then

    def read(self, marker: str, line: int) -> Parser[bool]:
        """Reads what this marker begins as text. Returns True if it is code. `line` is the offset where text begins
        without a line break before it."""
        quoted = self._quoting and bool(self._directly_after.fullmatch(self._s.captured()))
        if marker == FENCE:
            yield from self._backticks(starts_line(self._s, line))
        elif quoted:
            self._sink.text(self._s.skipped_space + marker)
            closer = yield from self._s.verbatim_until(markers(FENCE), self._sink.text)
            self._sink.text(closer)
            self._end(bool(closer))
        else:
            self._quoting = False
        return marker == FENCE or quoted

    def _backticks(self, starts_line: bool) -> Parser[None]:
        self._sink.text(self._s.skipped_space + FENCE)
        if starts_line:
            self._s.start_capture(FENCE)
            self._end((yield from read_fenced_block(self._s, self._sink.text, before=self._tag[0])))
        elif self._quoting:
            self._end(closed=True)
        else:
            self._s.start_capture(FENCE)
            self._quoting = True

    def _end(self, closed: bool) -> None:
        self._quoting = False
        warn_about_quoted_calls(self._s, self._sink, closed, self._tag)
        self._s.stop_capture()
