"""What versions of the CLI can do, as data.

Source: each tried, the last version without and the first with, of those that npm has of @anthropic-ai/claude-code;
November 2026.
"""

from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, int, int]

BUDGET_SINCE: Final[Version] = (2, 1, 329)
"""Tried: with a budget that is spent it does not ask its service again. 2.1.76, 2.1.152 and 2.1.200 break off the
answer itself for it."""
NATIVE_SINCE: Final[Version] = (2, 1, 152)
"""Takes the turns of a conversation one by one (2.1.110; one before answers each of them), and drops the empty block
that keeps it from reading a user's words as its own commands.
"""
TEXT_SINCE: Final[Version] = (2, 1, 76)
"""Asks its service for nothing but the answer, if told so. Those before also ask it, at their user's cost, for a word
of their own agents (to 2.1.5), for the files that matter in a repository that they stand in (to 2.1.68), and for a name
of the conversation, of the user's words (2.1.74 and 2.1.75; later ones take `--name`). The oldest cannot be started
without tools of their own (`--tools ""`, 2.0.31), nor be told a system prompt by their input (2.0.56).
"""


def version_string(version: Version) -> str:
    """As people write it, `2.1.329`."""
    return ".".join(map(str, version))
