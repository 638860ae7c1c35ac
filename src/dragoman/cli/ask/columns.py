"""The two columns at a terminal: left what the model writes, right what its client gets, each row as far as it goes.

A row is a block of the answer (thoughts, words, a call) with the text that made it. The last row is written over while
it grows; those above are done.
"""

import time
from typing import Final

from rich.box import Box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dragoman.cli._terminal_safe import printable
from dragoman.cli.ask.plain_view import Head, Totals, event_text, notice_text
from dragoman.core.events import AnyEvent, BlockChange
from dragoman.core.messages import FinishReason

NARROWEST: Final = 72
"""Columns of a terminal that two of ours need."""
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
    """Two of them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._width = min(console.width, _WIDEST)
        self._left_width = (self._width - 5) // 2
        self._right_width = self._width - 5 - self._left_width
        self._left = ""
        self._right = Text()
        self._made = 0
        """As much of the left as the right is made of so far."""
        self._titled = False
        self._live: Live | None = None
        self._drawn_s = 0.0

    def begin(self, head: Head) -> None:
        """The question, above."""
        rows = [("model", f"{head.model}  ·  {head.where}"), ("asked", head.question)]
        rows.append(("tools", f"{', '.join(head.tools) or 'none'}  ·  choice: {head.choice}"))
        for title, text in rows:
            self._console.print(Text(f" {title}  ", style="dim") + Text(printable(text), style="bold"))
        self._console.print()

    def turn(self) -> None:
        """The titles of the columns, the first time."""
        if self._titled:
            self._rule("┬")
            return
        self._titled = True
        self._console.print(self._row(Text("what comes from the model", "dim"), Text("what its client gets", "dim")))
        self._rule("┼")

    def again(self) -> None:
        """A row of its own."""
        self._flush(len(self._left))
        self._console.print(self._row(Text("asked once more, it says", "dim"), Text()))

    def raw(self, text: str) -> None:
        """On the left."""
        self._left += text
        self._draw()

    def event(self, event: AnyEvent, step: BlockChange) -> None:
        """On the right."""
        if step.opens and self._right:
            self._flush(self._made)
        said, style = event_text(event)
        told, mood = notice_text(event)
        if said:
            self._right.append(printable(said), _STYLES[style])
        if told:
            mark = "✓" if mood == "right" else "!"
            self._right.append(f"{chr(10) if self._right.plain.strip() else ''}{mark} {printable(told)}", _STYLES[mood])
        if said or told:
            self._made = len(self._left)
            self._draw()

    def over(self, reason: FinishReason) -> None:
        """The last row, and the reason."""
        self._flush(len(self._left))
        self._console.print(self._row(Text(), Text(f"finish: {reason}", "dim")))
        self._rule("┴")

    def result(self, name: str, arguments: str, result: str) -> None:
        """Between two turns."""
        line = Text(f" {printable(name)} ", "bold cyan") + Text(printable(arguments), "cyan") + Text("  →  ", "dim")
        self._console.print(line + Text(printable(result), "bold"))

    def close(self) -> None:
        """Leave the last row as it is."""
        self._flush(len(self._left))

    def end(self, sum: Totals) -> None:
        """What it took."""
        self._console.print(Text(f" {sum.words()}", "dim"))

    def _draw(self) -> None:
        """The row that grows, at most so often; one that fills the screen is done, and goes on in another."""
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
        """The row is done; it has this much of the left."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        left, self._left = self._left[:upto], self._left[upto:]
        right, self._right, self._made = self._right, Text(), 0
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
