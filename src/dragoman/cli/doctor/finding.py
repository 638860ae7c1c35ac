"""What is found of one thing: whether it works, and what to type where it does not."""

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from dragoman.cli.doctor.metrics_client import Calls

Verdict: TypeAlias = Literal["ok", "no", "note"]
"""`no`: it is to be used, and does not work; `note`: worth knowing, and in nobody's way."""

_TO_TYPE: Final = re.compile(r"(?:; (?:run|install it): |: (?=(?:pip|pipx|uv) ))(.+?)(?: - at \S+)?", re.DOTALL)
"""Where our messages have the line to type."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found of one thing."""

    what: str
    verdict: Verdict
    words: str
    fix: str = ""
    """What to type or do: it mends what does not work, or makes use of what is noted."""
    lines: tuple[str, ...] = ()
    """More of it, each on a line of its own."""
    models: "tuple[Calls, ...]" = ()
    """What became of the calls of each; a table below the words."""


def check(what: str, verdict: Verdict, message: str, fix: str = "") -> Finding:
    """Of an error's message: its line to type apart from its words; `fix` where it has none."""
    for joint in _TO_TYPE.finditer(message):
        if found := _TO_TYPE.fullmatch(message, joint.start()):
            return Finding(what, verdict, message[: joint.start()], found[1])
    return Finding(what, verdict, message, fix)
