"""Keeps the claude CLI from interpreting the text of messages; the text reaches the model unchanged.

In a user's line of `--input-format stream-json`, the CLI interprets only the last text block. There, by default, it
reads

- `@path`, `@~/path`, `@"path"`, `@path#L1-2`: it attaches the file, the image or the list of the folder;
  `@agent-name` and `@"name (agent)"` become an order to use that agent;
- `/name` at the very beginning: a command, with the shell commands of its file, or a prompt of an MCP server; for an
  unknown name the CLI inserts a remark of its own. The text itself does not reach the model.

An empty text block after the client's own is that last one. The CLI drops it, and all others reach the model unchanged.
That holds for 2.1.152 to 2.1.330, for past lines (`shouldQuery`) and for the last; older versions sent it to the
service.

Two further measures (`command`): CLAUDE_CODE_DISABLE_ATTACHMENTS, with which it interprets no `@`, and
`--disable-slash-commands`, with which it runs no command that is a prompt. It does not interpret system prompts, tool
results and the model's own turns at all.

Source: the CLI itself, 2.1.329, run on each spelling (tests/e2e/claude_cli/test_prompt_escape.py), and 2.0.31,
2.0.60, 2.1.0, 2.1.62, 2.1.110, 2.1.156, 2.1.200, 2.1.248 and 2.1.330 on some; November 2026.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

_LAST: Final = {"type": "text", "text": ""}


def append_command_guard(blocks: Sequence[object]) -> list[object]:
    """Returns the blocks of a user's message with an empty one at the end, so that the CLI interprets no other."""
    return [*blocks, _LAST]


def indent_slash_command(blocks: Sequence[object]) -> list[object]:
    """Returns the blocks for a version that sends an empty block on, which the service rejects: a space before `/`.

    Such a version interprets the last block, text or not; CLAUDE_CODE_DISABLE_ATTACHMENTS covers its `@`.
    """
    *before, last = blocks
    block = msgspec.json.decode(msgspec.json.encode(last), type=dict[str, Any])
    text = block.get("text", "")
    return [*before, {**block, "text": f" {text}"}] if text.startswith("/") else [*blocks]
