"""One result of `dragoman doctor`: whether something works, and the command that fixes it."""

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from dragoman.cli.doctor.metrics_client import Calls

Verdict: TypeAlias = Literal["ok", "no", "note"]
"""`no`: it is needed and does not work; `note`: worth knowing, but not a problem."""

_COMMAND: Final = re.compile(r"(?:; (?:run|install it): |: (?=(?:pip|pipx|uv) ))(.+?)(?: - at \S+)?", re.DOTALL)
"""Where our messages contain a command to run."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check."""

    what: str
    verdict: Verdict
    text: str
    fix: str = ""
    """The command or the action that fixes the problem, or makes use of what is noted."""
    lines: tuple[str, ...] = ()
    """Further lines of text."""
    models: "tuple[Calls, ...]" = ()
    """Outcomes of the tool calls of each model, for the table below the text."""


def check(what: str, verdict: Verdict, message: str, fix: str = "") -> Finding:
    """Returns a finding for an error's message.

    Args:
        what: the subject.
        verdict: whether it works.
        message: the message, whose command to run is separated from its text.
        fix: the command to run if the message has none.
    """
    for joint in _COMMAND.finditer(message):
        if match := _COMMAND.fullmatch(message, joint.start()):
            return Finding(what, verdict, message[: joint.start()], match[1])
    return Finding(what, verdict, message, fix)
