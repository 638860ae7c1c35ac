"""Text of a model for a terminal, as it streams: wrapped between words, with Markdown coloured and not changed.

    "# Plan\\n- use `git`, **not**…"   →   the same characters; heading and **not** bold, `git` in another colour

Lines of fenced code are never wrapped. The last word is held back until the text after it arrives; `close` returns it.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from unicodedata import combining, east_asian_width

from dragoman.cli._terminal import printable

_MAX_WIDTH: Final = 100
_LONGEST_WORD: Final = 40
"""Longer runs without a blank are printed at once."""
_TAB: Final = "    "
_FENCES: Final = ("```", "~~~")
_HEADING: Final = re.compile(r"#{1,6}")
_BULLET: Final = re.compile(r"[-*+>]|\d{1,3}[.)]")
_MARKS: Final = re.compile(r"(\*\*|`+)")


class Palette(NamedTuple):
    """Whether colours are used, and the codes of the styles."""

    on: bool
    bold: str = "1"
    dim: str = "2"
    code: str = "36"
    warning: str = "33"
    wrong: str = "31"

    def paint(self, text: str, *styles: str) -> str:
        """Returns the text in these styles."""
        codes = ";".join(filter(None, styles))
        return f"\x1b[{codes}m{text}\x1b[0m" if self.on and codes and text else text


class ReplyText:
    """The text of one block of a response."""

    def __init__(self, columns: int, palette: Palette, style: str = "") -> None:
        """Args:
        columns: Width of the terminal.
        palette: The colours.
        style: Style of all text; empty: Markdown is coloured.
        """
        self._width = max(20, min(columns - 1, _MAX_WIDTH))
        self._palette, self._style = palette, style
        self._blanks = self._word = ""
        self._column = 0
        self._fenced = False
        self._begin_line()

    def feed(self, text: str) -> str:
        """Returns what to print now."""
        out: list[str] = []
        for char in printable(text.replace("\r\n", "\n").replace("\t", _TAB)):
            if char == "\n":
                out += [*self._take_word(), "\n"]
                self._blanks, self._column = "", 0
                self._begin_line()
            elif char == " ":
                out += self._take_word()
                self._blanks += char
            else:
                self._word += char
                if len(self._word) >= _LONGEST_WORD or _cells(char) > 1:
                    out += self._take_word()
        return "".join(out)

    def close(self) -> str:
        """Returns the rest."""
        return "".join(self._take_word())

    def _begin_line(self) -> None:
        self._indent = 0
        self._begins = True
        self._line_style = self._palette.code if self._fenced and not self._style else self._style
        self._bold = self._code = False

    def _take_word(self) -> Iterator[str]:
        """Yields the word with the blanks before it, or in a new line."""
        if not self._word:
            return
        word, blanks, self._word, self._blanks = self._word, self._blanks, "", ""
        if self._begins:
            self._classify(word, len(blanks))
        width = sum(map(_cells, word))
        if not self._fenced and self._column + len(blanks) + width > self._width and self._column > self._indent:
            yield "\n" + " " * self._indent
            self._column = self._indent + width
        else:
            yield blanks
            self._column += len(blanks) + width
        yield from self._styled(word)

    def _classify(self, word: str, blanks: int) -> None:
        """Takes the kind of a line from its first word."""
        self._begins = False
        if self._style:
            return
        if word.startswith(_FENCES):
            self._fenced = not self._fenced
            self._line_style = self._palette.dim
        elif not self._fenced and _HEADING.fullmatch(word):
            self._line_style = self._palette.bold
        elif not self._fenced and _BULLET.fullmatch(word):
            self._indent = min(blanks + len(word) + 1, self._width // 2)

    def _styled(self, word: str) -> Iterator[str]:
        if self._line_style or not self._palette.on:
            yield self._palette.paint(word, self._line_style)
            return
        for piece in filter(None, _MARKS.split(word)):
            is_code, is_bold = piece[0] == "`", piece == "**" and not self._code
            before = self._code, self._bold
            self._code ^= is_code
            self._bold ^= is_bold
            in_code, in_bold = self._code or before[0], self._bold or before[1]  # a mark has the style of its text
            yield self._palette.paint(
                piece, self._palette.code if in_code else "", self._palette.bold if in_bold else ""
            )


def _cells(char: str) -> int:
    """Returns the columns that a character takes."""
    return 0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1
