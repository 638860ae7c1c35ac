"""Questions at the terminal, each with a default; without questions the defaults are used."""

from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from textwrap import fill

from dragoman.cli._terminal import printable


def ask_at_terminal(prompt: str) -> str:
    """Returns a line that the user types; the prompt is wrapped at the width of the terminal.

    Raises: KeyboardInterrupt: Ctrl-C or Ctrl-D was pressed.
    """
    try:
        return input(fill(printable(prompt), get_terminal_size().columns - 2, break_on_hyphens=False) + " ").strip()
    except EOFError:
        print()
        raise KeyboardInterrupt from None


class Questions:
    """Asks the user."""

    def __init__(self, ask: Callable[[str], str] | None, show: Callable[[str], None]) -> None:
        """
        Args:
            ask: asks at the terminal, and returns the line that is typed; None: the defaults are used.
            show: prints a line.
        """
        self._ask, self._show = ask, show

    @property
    def can_ask(self) -> bool:
        """Whether the user is asked."""
        return self._ask is not None

    def confirm(self, question: str, *, default: bool) -> bool:
        """Returns the answer to a question of yes or no.

        Raises: KeyboardInterrupt: the user ended the command.
        """
        if self._ask is None:
            return default
        self._show("")
        while True:
            answer = self._ask(f"{question} [{'Y/n' if default else 'y/N'}] ").lower()
            if not answer:
                return default
            if answer in ("y", "yes", "n", "no"):
                return answer[0] == "y"
            self._show(f"type y for yes, n for no, or Enter for {'yes' if default else 'no'}")

    def choose(self, question: str, lines: Sequence[str], names: Sequence[str], max_shown: int) -> int:
        """Returns the index of the chosen line; the default is the first.

        Args:
            question: the question.
            lines: a text for each choice.
            names: the name of each choice, which can be typed too.
            max_shown: maximum number of lines to print.

        Raises: KeyboardInterrupt: the user ended the command.
        """
        if self._ask is None or len(lines) == 1:
            return 0
        self._show("")
        self._show(question)
        for number, line in enumerate(lines[:max_shown], 1):
            self._show(f"  {number:2}  {line}")
        if len(lines) > max_shown:
            self._show(f"      and {len(lines) - max_shown} more; type a name: {', '.join(names[max_shown:])}")
        while True:
            answer = self._ask("Number or name [1]: ")
            if not answer:
                return 0
            if answer.isdecimal() and 1 <= int(answer) <= len(lines):
                return int(answer) - 1
            if answer in names:
                return names.index(answer)
            self._show(f"type a number from 1 to {len(lines)}, a name of the list, or Enter for {names[0]}")
