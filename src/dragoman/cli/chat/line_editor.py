"""Reads what the user types: by readline with history and completion, several lines at once where they belong together.

A line that ends with a backslash continues in the next one. Pasted text is one message, whatever lines it has: GNU
readline knows by bracketed paste, otherwise by the input that is already waiting.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from dragoman.cli.chat.history_file import HistoryFile

CONTINUATION: Final = "… "
"""Prompt of a line that continues the one before."""
_PASTED_S: Final = 0.03
"""Time within which the next line of pasted text arrives."""
_BOLD: Final = "\001\x1b[1m\002{}\001\x1b[0m\002"
"""A bold prompt, in the marks by which readline knows what has no width."""


class LineEditor:
    """Reads lines from the terminal."""

    def __init__(self, history: HistoryFile | None, complete: Callable[[str], list[str]], *, colour: bool) -> None:
        """Args:
        history: Where entries are kept; None: only until the end.
        complete: Returns the completions of the line so far, each a whole line.
        colour: Whether the prompt may be bold.
        """
        self._history, self._complete = history, complete
        self._readline = _readline()
        self._is_gnu = self._readline is not None and "libedit" not in (self._readline.__doc__ or "")
        self._bold = colour and self._is_gnu
        self._matches: list[str] = []
        if self._readline is not None:
            self._set_up(self._readline)

    def _set_up(self, readline: Any) -> None:
        readline.set_auto_history(False)
        readline.set_completer_delims("")  # a completion replaces the line
        readline.set_completer(self._completion)
        if self._is_gnu:
            readline.parse_and_bind("tab: complete")
            readline.parse_and_bind("set enable-bracketed-paste on")
        else:
            readline.parse_and_bind("bind ^I rl_complete")
        for entry in self._history.load() if self._history else ():
            readline.add_history(entry)

    def read(self, prompt: str) -> str:
        """Returns the next message.

        Raises:
            EOFError: Ctrl-D was pressed.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        lines: list[str] = []
        while True:
            first = _BOLD.format(prompt) if self._bold else prompt
            lines += self._lines(CONTINUATION if lines else first)
            if not lines[-1].endswith("\\"):
                break
            lines[-1] = lines[-1][:-1]
        message = "\n".join(lines)
        if message.strip():
            self._remember(message)
        return message

    def ask(self, prompt: str) -> str:
        """Returns the answer to a question, which does not become part of the history. Raises the errors of `read`."""
        return _clean(input(prompt)).strip()

    def _lines(self, prompt: str) -> list[str]:
        lines = [_clean(input(prompt))]
        if not self._is_gnu:
            while _is_pasted():
                lines.append(_clean(input()))
        return lines

    def _remember(self, message: str) -> None:
        if self._readline is not None:
            self._readline.add_history(message)
        if self._history is not None:
            self._history.add(message)

    def _completion(self, text: str, state: int) -> str | None:
        if state == 0:
            self._matches = self._complete(text)
        return self._matches[state] if state < len(self._matches) else None


def _readline() -> Any:
    """Returns the module, or None where Python has none (Windows)."""
    try:
        return import_module("readline")
    except ImportError:
        return None


def _is_pasted() -> bool:
    """Whether another line is already waiting."""
    if sys.platform == "win32":
        msvcrt = import_module("msvcrt")
        return bool(msvcrt.kbhit())
    import select

    return bool(select.select([sys.stdin], [], [], _PASTED_S)[0])


def _clean(text: str) -> str:
    """Returns the text without bytes that are not UTF-8, which could not be sent."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextmanager
def without_echo() -> Iterator[None]:
    """Within the block, typed keys are not shown, so that they do not mix with a reply; they stay for the next line."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = termios.tcgetattr(descriptor)
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
