"""What versions of the CLI can do, as data.

Source: each tried, the last version without and the first with, of those that npm has of @anthropic-ai/claude-code;
November 2026.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

Version: TypeAlias = tuple[int, int, int]

NATIVE_SINCE: Final[Version] = (2, 1, 152)
"""Takes the turns of a conversation one by one (2.1.110; one before answers each of them), and drops the empty block
that keeps it from reading a user's words as its own commands.
"""
TEXT_SINCE: Final[Version] = (2, 1, 6)
"""Asks its service for nothing but the answer: those before also have their own agents say something ("Warmup") at each
start, at its user's cost. Older ones cannot be started without tools of their own (`--tools ""`, 2.0.31), nor be told a
system prompt by their input (2.0.56).
"""


def dotted(version: Version) -> str:
    """As people write it, `2.1.329`."""
    return ".".join(map(str, version))


class Flag(NamedTuple):
    """One that is younger than the oldest version which is used here, and that can be left out."""

    since: Version
    values: int = 0


FLAGS: Final[Mapping[str, Flag]] = {
    "--effort": Flag((2, 1, 38), 1),
    # Without a name, one is asked for of the service, with the user's words (2.1.74 and 2.1.75 ask all the same).
    "--name": Flag((2, 1, 76), 1),
}


def known(line: Sequence[str], version: Version) -> list[str]:
    """The words of a command line without the flags that this version does not have."""
    said: list[str] = []
    skip = 0
    for word in line:
        flag = FLAGS.get(word)
        if skip:
            skip -= 1
        elif flag is not None and version < flag.since:
            skip = flag.values
        else:
            said.append(word)
    return said
