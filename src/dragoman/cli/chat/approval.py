"""Asks the user before a tool call is run: nothing runs without a yes, a tool that is always allowed, or `--yes`."""

import json
from collections.abc import Callable
from typing import Final

from dragoman.cli._terminal import one_line, printable
from dragoman.core.messages import ToolCall
from dragoman.text.json_cursor import load_json

_LONG: Final = 400
"""Arguments up to this length are printed whole; of longer ones the user can see the rest before the decision."""
DECLINED: Final = "the user declined this call"
NOT_ASKED: Final = "the call was not run, because the user cannot be asked"


def arguments_text(call: ToolCall) -> str:
    """Returns the arguments on one line."""
    try:
        return one_line(json.dumps(load_json(call.arguments), ensure_ascii=False))
    except (ValueError, RecursionError):
        return one_line(call.arguments)


class Approval:
    """The user's decisions."""

    def __init__(self, ask: Callable[[str], str] | None, show: Callable[[str], None], *, accept_all: bool) -> None:
        """Args:
        ask: Asks a question at the terminal and returns the answer; None: there is no terminal.
        show: Prints text for the user.
        accept_all: Every call is run.
        """
        self._ask, self._show, self._accept_all = ask, show, accept_all
        self._always = set[str]()

    def is_automatic(self, name: str) -> bool:
        """Whether calls of this tool run without a question."""
        return self._accept_all or name in self._always

    def refusal(self, call: ToolCall) -> str:
        """Returns why a call must not be run, or "" if it may.

        Raises:
            KeyboardInterrupt, EOFError: The user ended the question.
        """
        if self.is_automatic(call.name):
            return ""
        if self._ask is None:
            return NOT_ASKED
        is_long = len(arguments_text(call)) > _LONG
        choices = "y = yes, n = no, a = always this tool" + (", s = show all arguments" if is_long else "")
        while True:
            answer = self._ask(f"  run {one_line(call.name)}? [{choices}] ").lower()
            if answer in ("y", "yes"):
                return ""
            if answer in ("n", "no", ""):
                return DECLINED
            if answer in ("a", "always"):
                self._always.add(call.name)
                return ""
            if answer in ("s", "show"):
                self._show(_pretty(call))


def _pretty(call: ToolCall) -> str:
    try:
        return printable(json.dumps(load_json(call.arguments), ensure_ascii=False, indent=2))
    except (ValueError, RecursionError):
        return printable(call.arguments)


def shortened(text: str, limit: int = _LONG) -> str:
    """Returns the text with its end replaced by the number of characters that are left out."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"
