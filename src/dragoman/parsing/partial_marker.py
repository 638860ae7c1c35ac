"""The end of a reply where the model stopped within a marker: `…</function>\\n</tool_c`."""

from dragoman.parsing.sink import ToolCallSink
from dragoman.text.scanner import Parser, Scanner


def drop_partial_closer(s: Scanner, sink: ToolCallSink, *closers: str) -> Parser[None]:
    """Drops the beginning of a call's closing marker, and the white space before it, if the reply ends within it."""
    longest = max(map(len, closers), default=0)
    while True:
        start = s.space_end()
        rest = s.buf[start : start + longest]
        if rest in closers or not any(closer.startswith(rest) for closer in closers):
            return
        if s.closed and rest:
            s.pos = len(s.buf)
            sink.warn("stray_closing_tag", f"dropped {rest} at the end of the reply", rest)
        if s.closed:
            return
        yield None
