"""The progress of a download: bars on a terminal, lines elsewhere."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TextIO

from dragoman.backends.embedded import weights

if TYPE_CHECKING:
    from rich.progress import Progress

_LINE_EVERY_S: Final = 1.0
"""Limits the lines in a log."""


class ProgressBar:
    """Shows progress: on a terminal a bar for each step with the time left; else a line for each part and each 10 %.

    With `log`, that receives the lines, and nothing is shown.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float], log: Callable[[str], None] | None = None) -> None:
        self._out = out
        self._clock = clock
        self._log = log
        self._tty = log is None and out.isatty() and _can_draw_bars()
        self._bars: Progress | None = None
        self._what = ""
        self._step_start = (0.0, 0)
        """When the current step began, in seconds, and at how many bytes."""
        self._last_line = ("", -1)
        self._printed_s = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        """Shows the progress; see `weights.Progress`."""
        step = "part" if what.startswith("part ") else what
        begins = step != self._what
        if begins:
            self._what, self._step_start = step, (self._clock(), done)
        if self._tty:
            self._draw(done, total, what, begins)
        else:
            self._print(done, total, what)

    def _draw(self, done: int, total: int, what: str, begins: bool) -> None:
        if self._bars is None:
            self._bars = _progress_bars(self._out, self._clock)
            self._bars.start()
        if begins:
            self._bars.add_task(what, total=total or None, completed=done)
        self._bars.update(self._bars.task_ids[-1], description=what, total=total or None, completed=done)

    def _print(self, done: int, total: int, what: str) -> None:
        now = self._clock()
        tenth = done * 10 // total if total else 0
        due = tenth == 10 or now - self._printed_s >= _LINE_EVERY_S
        if what != self._last_line[0] or (tenth != self._last_line[1] and due):
            self._last_line, self._printed_s = (what, tenth), now
            self.print_line(self._line(done, total, what, now))

    def print_line(self, text: str) -> None:
        """Prints or logs a line."""
        if self._log:
            self._log(text)
        else:
            print(text, file=self._out, flush=True)

    def close(self) -> None:
        """Ends the bars; what follows is printed below them."""
        if self._bars is not None:
            self._bars.stop()
            self._bars, self._what = None, ""

    def _line(self, done: int, total: int, what: str, now: float) -> str:
        began, first = self._step_start
        mb_per_s = (done - first) / 1e6 / (now - began) if now > began else 0.0
        share = f"{done * 100 // total:3d} %  " if total else ""
        of_total = f" of {weights.format_size(total)}" if total else ""
        return f"{share}{weights.format_size(done)}{of_total}  {mb_per_s:.1f} MB/s  {what}"


def _can_draw_bars() -> bool:
    return os.environ.get("TERM") != "dumb" and find_spec("rich") is not None


def _progress_bars(out: TextIO, clock: Callable[[], float]) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(file=out), get_time=clock)
