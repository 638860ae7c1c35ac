"""Position of text within its lines: at the beginning, within a line, or in code and quotations."""

import re
from typing import Final, Literal

LINE_LIMIT_CHARS: Final = 256
"""Only this many characters of a line are kept."""
PENDING_LIMIT_CHARS: Final = 4096
"""From this size on, text is looked at also if no position is needed."""
_FENCE: Final = re.compile(r"[\s>*+-]*(?:\d+[.)]\s*)?(`{3,}(?=[^`]*\Z)|~{3,})")
_LINE_MARKERS: Final = re.compile(r"[\s>|#*+/\-\d.)]*[>|#*+/\-\d.)]\s*")
"""Marks before quoted or listed text, or a comment."""
_QUOTE_MARKS: Final = ("`", '"')
"""Characters that begin and end a quotation within a line."""


class LineContext:
    """Tracks the position of the text within its lines."""

    def __init__(self) -> None:
        self._line = ""
        self._pending: list[str] = []
        """Text that has been fed and not looked at: a position is seldom needed."""
        self._pending_chars = 0
        self._fence = ""
        self._quotes = [0] * len(_QUOTE_MARKS)
        """Number of each quote mark in the current line."""

    def feed(self, text: str) -> None:
        """Adds the next piece of text."""
        self._pending.append(text)
        self._pending_chars += len(text)
        if self._pending_chars > PENDING_LIMIT_CHARS:
            self._read_pending()

    def _read_pending(self) -> None:
        text = "".join(self._pending)
        self._pending, self._pending_chars = [], 0
        *ended, line = text.split("\n")
        for each in ended:
            self._end_line((self._line + each)[:LINE_LIMIT_CHARS])
            self._line = ""
        self._line = (self._line + line)[:LINE_LIMIT_CHARS]
        before = [0] * len(_QUOTE_MARKS) if ended else self._quotes
        self._quotes = [count + line.count(mark) for count, mark in zip(before, _QUOTE_MARKS, strict=True)]

    def position(self, space: str) -> Literal["begins", "within", "talk"]:
        """Returns the position of text that follows this white space; `talk`: in code, a quotation or a list."""
        self._read_pending()
        if "\n" in space:
            self.feed("\n")  # the white space itself is fed with the text
            self._read_pending()
            line, self._line = space.rpartition("\n")[2], ""
        else:
            line = self._line + space
        if self._fence or _LINE_MARKERS.fullmatch(line) or any(count % 2 for count in self._quotes):
            return "talk"
        return "within" if line else "begins"

    def _end_line(self, line: str) -> None:
        match = _FENCE.match(line)
        if not self._fence:
            self._fence = match[1] if match else ""
        elif (bare := line.strip("\r\t >")).startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
