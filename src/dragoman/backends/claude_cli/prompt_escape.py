"""Keeps words for the claude CLI from doing anything on their way to its model; none of them is changed.

In a user's line of `--input-format stream-json` the CLI looks for what concerns it in one place: the last block of
text. There, unless it is told otherwise, it reads

- `@path`, `@~/path`, `@"path"`, `@path#L1-2`: the file, the picture or the list of the folder goes along;
  `@agent-name` and `@"name (agent)"` become an order to use that agent;
- `/name` as the very first characters: a command, with what its file says to run in a shell, or a prompt of a server of
  MCP; another name gets a remark of the CLI's own. The words themselves do not reach the model.

An empty block of text behind the client's own is that last one. The CLI drops it, and all others reach the model as
they are. So in 2.1.152 to 2.1.330, in lines of the past (`shouldQuery`) as in the last; before, it reached the service.

Behind that stand CLAUDE_CODE_DISABLE_ATTACHMENTS, by which it reads no `@`, and `--disable-slash-commands`, by which it
runs none of the commands that are prompts (`command`). It does not read system prompts, results of tools and the
model's own turns at all.

Source: the CLI itself, 2.1.329, run on each spelling (tests/test_claude_prompt.py), and 2.0.31, 2.0.60, 2.1.0, 2.1.62,
2.1.110, 2.1.156, 2.1.200, 2.1.248 and 2.1.330 on some; November 2026.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_LAST: Final = {"type": "text", "text": ""}


def append_command_guard(blocks: Sequence[object]) -> list[object]:
    """The blocks of a user's message, in which the CLI finds no file, agent or command."""
    return [*blocks, _LAST]


def indent_slash_command(blocks: Sequence[object]) -> list[object]:
    """The same for a CLI that would send the empty block on, which its service refuses: no command begins with a blank.

    It is the last block that such a one reads, of text or not; its `@` is closed by CLAUDE_CODE_DISABLE_ATTACHMENTS.
    """
    *before, last = blocks
    block = msgspec.json.decode(msgspec.json.encode(last), type=dict[str, Any])
    text = block.get("text", "")
    return [*before, {**block, "text": f" {text}"}] if text.startswith("/") else [*blocks]
