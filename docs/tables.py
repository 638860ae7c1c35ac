"""Writes Markdown tables for the generated pages."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Final

_CODE: Final = re.compile(r"`([^`]*)`")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], marks: Sequence[str] = ()) -> str:
    """Returns a table, which ends in a line break.

    Args:
        heads: the header cells.
        rows: the cells of each row, as Markdown.
        marks: the alignment of each column, such as `:-:`; empty: none.
    """
    lines = [row(heads), row(marks or ("---",) * len(heads)), *map(row, rows)]
    return "".join(f"{line}\n" for line in lines)


def row(cells: Sequence[str]) -> str:
    """Returns one row of a table, with pipes in its cells escaped."""
    return "| " + " | ".join(_CODE.sub(_as_html, cell).replace("|", "\\|") for cell in cells) + " |"


def _as_html(code: re.Match[str]) -> str:
    """Returns code with a pipe as HTML, because the site shows the backslash of a pipe that is escaped in code."""
    if "|" not in code[1]:
        return code[0]
    return f"<code>{html.escape(code[1], quote=False).replace('|', '&#124;')}</code>"
