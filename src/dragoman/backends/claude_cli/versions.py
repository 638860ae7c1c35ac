"""Capabilities of versions of the CLI, as data.

Source: each tried, the last version without and the first with, of those that npm has of @anthropic-ai/claude-code;
November 2026.
"""

from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, int, int]

BUDGET_SINCE: Final[Version] = (2, 1, 329)
"""From here on, a spent budget only stops further requests. With it, 2.1.76, 2.1.152 and 2.1.200 break off the response
itself.
"""
NATIVE_SINCE: Final[Version] = (2, 1, 152)
"""Accepts the turns of a conversation one by one (from 2.1.110; older versions respond to each of them), and drops the
empty block that keeps it from interpreting a user's text as commands.
"""
TEXT_SINCE: Final[Version] = (2, 1, 76)
"""Sends its service nothing but the request for the response, if configured so. Older versions also send, at the user's
cost, requests about their own agents (to 2.1.5), about the important files of a repository (to 2.1.68), and for a title
of the conversation from the user's text (2.1.74 and 2.1.75; later versions accept `--name`). The oldest cannot be
started without tools of their own (`--tools ""`, 2.0.31), nor get a system prompt by their input (2.0.56).
"""


def version_string(version: Version) -> str:
    """Returns the version as text, `2.1.329`."""
    return ".".join(map(str, version))
