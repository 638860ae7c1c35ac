"""Two columns on a terminal: on the left the model's text, on the right what the client receives.

A row is one block of the response (reasoning, text, a call) with the text that it was read from. The last row is
redrawn while it grows; those above are complete.
"""

import time
from typing import Final

from rich.box import Box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dragoman.cli._terminal import printable
from dragoman.cli.ask.plain_view import Head, Totals, event_text, notice_text
from dragoman.core.events import AnyEvent, BlockChange
from dragoman.core.messages import FinishReason

NARROWEST: Final = 72
"""Minimum width of the terminal."""
_WIDEST: Final = 112
_BETWEEN: Final = Box("    \n  │ \n    \n  │ \n    \n    \n  │ \n    \n")
_STYLES: Final = {
    "raw": "",
    "text": "",
    "thought": "dim italic",
    "name": "bold cyan",
    "arguments": "cyan",
    "right": "green",
    "wrong": "bold red",
    "warning": "yellow",
    "head": "bold",
    "frame": "dim",
}
_DRAW_EVERY_S: Final = 0.04


class ColumnsView:
    """A view with two columns."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, _WIDEST)
        self._left_width = (self._width - 5) // 2
        self._right_width = self._width - 5 - self._left_width
        self._left = ""
        self._right = Text()
        self._drawn_left = 0
        """Length of the part of the left column that the right column was read from."""
        self._titled = False
        self._live: Live | None = None
        self._drawn_s = 0.0

    def begin(self, head: Head) -> None:
        """Shows the question."""
        rows = [("model", f"{head.model}  ·  {head.where}"), ("asked", head.question)]
        rows.append(("tools", f"{', '.join(head.tools) or 'none'}  ·  choice: {head.choice}"))
        for title, text in rows:
            self._console.print(Text(f" {title}  ", style="dim") + Text(printable(text), style="bold"))
        self._console.print()

    def begin_turn(self) -> None:
        """Shows the titles of the columns, the first time."""
        if self._titled:
            self._rule("┬")
            return
        self._titled = True
        self._console.print(self._row(Text("model's text", "dim"), Text("response to the client", "dim")))
        self._rule("┼")

    def begin_reask(self) -> None:
        """Begins a new row."""
        self._flush(len(self._left))
        self._console.print(self._row(Text("re-asked; model's text", "dim"), Text()))

    def feed_raw(self, text: str) -> None:
        """Appends to the left column."""
        self._left += text
        self._draw()

    def feed(self, event: AnyEvent, step: BlockChange) -> None:
        """Appends to the right column."""
        if step.opens and self._right:
            self._flush(self._drawn_left)
        text, style = event_text(event)
        notice, notice_style = notice_text(event)
        if text:
            self._right.append(printable(text), _STYLES[style])
        if notice:
            mark = "✓" if notice_style == "right" else "!"
            self._right.append(
                f"{chr(10) if self._right.plain.strip() else ''}{mark} {printable(notice)}", _STYLES[notice_style]
            )
        if text or notice:
            self._drawn_left = len(self._left)
            self._draw()

    def end_turn(self, reason: FinishReason) -> None:
        """Completes the last row, and shows the finish reason."""
        self._flush(len(self._left))
        self._console.print(self._row(Text(), Text(f"finish: {reason}", "dim")))
        self._rule("┴")

    def show_result(self, name: str, arguments: str, result: str) -> None:
        """Shows the result between two turns."""
        line = Text(f" {printable(name)} ", "bold cyan") + Text(printable(arguments), "cyan") + Text("  →  ", "dim")
        self._console.print(line + Text(printable(result), "bold"))

    def close(self) -> None:
        """Completes the last row as it is."""
        self._flush(len(self._left))

    def show_totals(self, sum: Totals) -> None:
        """Shows the totals."""
        self._console.print(Text(f" {sum.summary()}", "dim"))

    def _draw(self) -> None:
        """Redraws the last row, at most every `_DRAW_EVERY_S`; one that fills the screen is continued."""
        now_s = time.monotonic()
        if now_s - self._drawn_s < _DRAW_EVERY_S:
            return
        self._drawn_s = now_s
        row = self._row(Text(printable(self._left)), self._right)
        if self._live is None:
            self._live = Live(row, console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live.start()
        lines = max(len(self._left) // self._left_width, len(self._right) // self._right_width)
        lines += max(self._left.count("\n"), self._right.plain.count("\n"))
        if lines > self._console.height - 6:
            self._flush(len(self._left))
        else:
            self._live.update(row, refresh=True)

    def _flush(self, upto: int) -> None:
        """Completes the row with the left column up to this length."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        left, self._left = self._left[:upto], self._left[upto:]
        right, self._right, self._drawn_left = self._right, Text(), 0
        if left.strip() or right.plain.strip():
            self._console.print(self._row(Text(printable(left).strip("\n")), right))

    def _row(self, left: Text, right: Text) -> Table:
        table = Table(box=_BETWEEN, show_header=False, show_edge=False, pad_edge=True, padding=(0, 1))
        table.border_style = _STYLES["frame"]
        table.add_column(width=self._left_width, overflow="fold")
        table.add_column(width=self._right_width, overflow="fold")
        right.rstrip()
        table.add_row(left, right)
        return table

    def _rule(self, cross: str) -> None:
        self._console.print(Text("─" * (self._left_width + 2) + cross + "─" * (self._right_width + 2), "dim"))
