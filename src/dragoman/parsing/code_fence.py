"""Code fences: what stands in them is shown, not meant.

    ```json
    {"name": "get_weather", "arguments": {}}
    ```

A fence opens at the start of a line, after white space at most, with three backticks or more. What follows on
that line has no backtick in it, else this is code within a line. It closes at a line of as many backticks or
more and nothing else.

Source: CommonMark 0.31.2 (2024-01), "Fenced code blocks". Taken more kindly: any indentation, as in lists.
"""

from collections.abc import Callable
from typing import Final

from dragoman.text.scanner import Parser, Scanner, discard, markers

FENCE: Final = "```"
Emit = Callable[[str], None]


def read_fence_open(s: Scanner) -> Parser[int]:
    """Take white space and the backticks of a fence; how many they are, 0 where none come."""
    if not (yield from s.literal(FENCE, after_space=True)):
        return 0
    return len(FENCE) + (yield from s.run("`", discard))


def read_fenced_block(s: Scanner, emit: Emit, size: int = 0, before: str = "") -> Parser[bool]:
    """Emit the rest of a fence, from behind its `size` backticks (0: more of them may come); whether it was closed.

    `before`: a call that may follow the closing backticks on their line, as small models have it.
    """
    size = size or len(FENCE) + (yield from s.run("`", emit))
    stop = yield from s.verbatim_until(markers("\n", "`"), emit)
    emit(stop)
    return stop == "`" or (yield from read_fence_lines(s, emit, size, before))


def read_fence_lines(s: Scanner, emit: Emit, size: int, before: str = "", begun: bool = False) -> Parser[bool]:
    """Emit the lines of a fence up to the one that closes it; whether that came. `begun`: from within a line."""
    while True:
        if not begun:
            yield from s.run(" \t", emit)
            ticks = yield from s.run("`", emit)
            if ticks >= size and (yield from _line_ends(s, emit, before)):
                return True
        begun = False
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
