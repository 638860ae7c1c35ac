"""Code fences: calls in them are examples, not calls.

    ```json
    {"name": "get_weather", "arguments": {}}
    ```

A fence opens at the start of a line, after at most white space, with three or more backticks. The rest of that line
contains no backtick, otherwise it is code within a line. It closes at a line with at least as many backticks and
nothing else.

Source: CommonMark 0.31.2 (2024-01), "Fenced code blocks". More lenient here: any indentation, as in lists.
"""

from collections.abc import Callable
from typing import Final

from dragoman.text.scanner import Parser, Scanner, discard, markers

FENCE: Final = "```"
Emit = Callable[[str], None]


def read_fence_open(s: Scanner) -> Parser[int]:
    """Reads white space and the backticks of a fence. Returns the number of backticks, 0 if there is no fence."""
    if not (yield from s.literal(FENCE, after_space=True)):
        return 0
    return len(FENCE) + (yield from s.run("`", discard))


def read_fenced_block(s: Scanner, emit: Emit, size: int = 0, before: str = "") -> Parser[bool]:
    """Emits the rest of a fence after its backticks. Returns True if it was closed.

    Args:
        s: The scanner, after the backticks that open the fence.
        emit: Receives the text.
        size: Number of backticks read so far; 0 if exactly three were read and more may follow.
        before: A marker that may follow the closing backticks on their line, as small models write calls.
    """
    size = size or len(FENCE) + (yield from s.run("`", emit))
    stop = yield from s.verbatim_until(markers("\n", "`"), emit)
    emit(stop)
    return stop == "`" or (yield from read_fence_lines(s, emit, size, before))


def read_fence_lines(s: Scanner, emit: Emit, size: int, before: str = "", in_line: bool = False) -> Parser[bool]:
    """Emits the lines of a fence up to the closing one. Returns True if that came.

    Args:
        s: The scanner, after the fence's first line, or in it.
        emit: Receives the text.
        size: Number of backticks that opened the fence; as many or more close it.
        before: A marker that may follow the closing backticks on their line, as small models write calls.
        in_line: Whether the scanner is within a line.
    """
    while True:
        if not in_line:
            yield from s.run(" \t", emit)
            ticks = yield from s.run("`", emit)
            if ticks >= size and (yield from _line_ends(s, emit, before)):
                return True
        in_line = False
        stop = yield from s.verbatim_until(markers("\n"), emit)
        emit(stop)
        if not stop:
            return False


def _line_ends(s: Scanner, emit: Emit, before: str) -> Parser[bool]:
    yield from s.run(" \t", emit)
    first = yield from s.peek()
    if first == "\r":
        return (yield from s.peek(2)) in ("\r", "\r\n")
    return first in ("", "\n") or (first == before[:1] and (yield from s.peek(len(before))) == before)
