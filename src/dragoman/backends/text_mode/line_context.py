"""Where in its lines a text stands: at a beginning, within one, or in code and quotations, where it is talk."""

import re
from typing import Final, Literal

LINE_CHARS: Final = 256
"""As much of a line as one looks at."""
_FENCE: Final = re.compile(r"[\s>*+-]*(?:\d+[.)]\s*)?(`{3,}(?=[^`]*\Z)|~{3,})")
_MARKS: Final = re.compile(r"[\s>|#*+/\-\d.)]*[>|#*+/\-\d.)]\s*")
"""Before what is quoted, listed, or a comment."""
_QUOTES: Final = ("`", '"')
"""What begins a quotation within a line, and ends it."""


class Lines:
    """Where in its lines a text stands."""

    def __init__(self) -> None:
        self._line = ""
        self._fence = ""
        self._quotes = [0] * len(_QUOTES)
        """How many of each the line has."""

    def add(self, text: str) -> None:
        """The text goes on."""
        *ended, line = text.split("\n")
        for each in ended:
            self._end((self._line + each)[:LINE_CHARS])
            self._line = ""
        self._line = (self._line + line)[:LINE_CHARS]
        before = [0] * len(_QUOTES) if ended else self._quotes
        self._quotes = [count + line.count(mark) for count, mark in zip(before, _QUOTES, strict=True)]

    def place(self, space: str) -> Literal["begins", "within", "talk"]:
        """Where what comes behind this white space would stand."""
        if "\n" in space:
            self.add("\n")  # the white space itself is told of with the text
            line, self._line = space.rpartition("\n")[2], ""
        else:
            line = self._line + space
        if self._fence or _MARKS.fullmatch(line) or any(count % 2 for count in self._quotes):
            return "talk"
        return "within" if line else "begins"

    def _end(self, line: str) -> None:
        found = _FENCE.match(line)
        if not self._fence:
            self._fence = found[1] if found else ""
        elif (bare := line.strip("\r\t >")).startswith(self._fence) and not bare.strip(self._fence[0]):
            self._fence = ""
