"""Keeps words for the claude CLI from doing anything on their way to its model.

Source: the CLI itself, 2.1.329, run on each spelling (tests/test_claude_prompt.py), November 2026. In a prompt of `-p`
and in the user lines of `--input-format stream-json`, strings and text blocks alike, with or without an answer asked
for, it reads

- `@path`, `@~/path`, `@./path`, `@"path"`, `@path#L1-2`: the file, the picture or the list of the folder goes along;
  `@agent-name` and `@"name (agent)"` become an order to use that agent. So in the middle and in fenced code, several
  times, whatever punctuation follows the path, wherever `@` comes first in the text or behind white space (as
  JavaScript has it, U+FEFF included) or one of `、。！？`. Not behind any other character, be it a quote, a bracket, a
  letter or one of no width; not before a blank; not a full-width `＠` or another look-alike; not `@server:uri`;
- `/name` as the very first characters: a command, with what its file says to run in a shell, or a prompt of a server of
  MCP. Another name gets a remark of the CLI's own, a path does not. Not behind white space.

A leading `!` is a shell to whom the CLI has at its keyboard only. It is kept from that all the same, and so is what
stands behind leading white space or any other character that is no letter, digit or ASCII: nothing but a test says that
the next version reads as this one does.

It does not read system prompts, results of tools and the model's own turns, so those need nothing of this. Of a list of
blocks it reads the last one alone, and drops that where it is blank: words before an empty text block go on unread and
unchanged, today. It reads no `@` at all with `--bare` or CLAUDE_CODE_DISABLE_ATTACHMENTS=1 (documented:
code.claude.com/docs/en/env-vars), and commands nonetheless.
"""

import re
from typing import Final

_JOINER: Final = "\u2060"
"""WORD JOINER. Of no width, no white space to JavaScript (as U+FEFF is), and left in place by the CLI."""
_READ: Final = re.compile(rf"(?<![!-~\w{_JOINER}])@(?=[^ \t\r\n])|\A[\s\ufeff]*[/!]")


def harmless(text: str) -> str:
    """The same words, in which the CLI finds no file, agent or command.

    A word joiner comes before the sign that would be read, so that paths and names stay whole; nothing else changes,
    and other text passes as it is: addresses, `"@scope/package"`, `a @ b`. What is harmless stays as it is.
    """
    return _READ.sub(rf"{_JOINER}\g<0>", text)
