"""Adds lines to a conversation that say what to do next, for models that follow what they read last.

    What does the file notes.txt say?
    Call one of Bash, Edit, Read, Write if this is about files or commands.

    (the result of Read)
    Above is the result of your call. From it, answer or go on: What does the file notes.txt say?

The first line is added to a user message about files or commands. With the system prompt alone, Qwen2.5-Coder 1.5B
calls a tool for half of such requests; with the line in every message it calls tools for general questions too. The
second line is added after results: without it this model refuses to answer, or writes the file that it has read
(docs/local.md).

A user message directly after results does not get the first line: there the model is re-asked after a call, and would
repeat the call.

A line depends only on the messages before it, so a conversation grows at its end and a prompt cache stays valid.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from dragoman.core.messages import Message, Part, Text, ToolResult

CALL_HINT: Final = "Call {} if this is about files or commands."
RESULT_HINT: Final = "Above is the result of your call. From it, answer or go on: "
MAX_NAMED_TOOLS: Final = 8
"""Tools that `CALL_HINT` names at most."""
MAX_QUESTION_CHARS: Final = 300
"""Characters of the user's text that `RESULT_HINT` repeats at most."""
_CALL_LINE: Final = re.compile(r"\n" + re.escape(CALL_HINT).replace(r"\{\}", r"[\w, .-]+") + r"\Z")
_ABOUT_FILES: Final = re.compile(
    r"\b((the|this|these|those|my|our|all) (\w+ ){0,2}|(what|which) )"
    r"(files?|folders?|director(y|ies)|repo(sitory)?|codebase|code|project|scripts?|tests?)\b"
    r"|^(please )?run\b|(?<![\w-])\w[\w-]+\.[a-z]\w{0,9}\b|(?<!\S)(\.{0,2}|~)/\w",
    re.IGNORECASE | re.MULTILINE,
)
"""The name of a file, a path, "run …", or certain files: after "How do I delete a folder?" the line led to `rm -rf`."""
_REMINDER: Final = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
"""Text of Claude Code or OpenCode itself in a user message."""


def add_hints(messages: Sequence[Message], tools: Sequence[str]) -> tuple[Message, ...]:
    """Returns the messages with the hints added.

    Args:
        messages: The conversation.
        tools: Names of the offered tools for files or commands; empty: no tools are named.
    """
    some = ("one of " if tools[1:] else "") + ", ".join(tools[:MAX_NAMED_TOOLS])
    named = f"\n{CALL_HINT.format(some)}" if tools else ""
    with_hints: list[Message] = []
    question, waits, answering = "", False, False
    for message in messages:
        results = _results(message)
        if waits and not results:
            with_hints.append(_after_results(question))
        waits = bool(results and question and not any(result.is_error for result in results))
        own = [n for n, part in enumerate(message.parts) if isinstance(part, Text) and not is_reminder(part)]
        if message.role == "user" and own:
            question, waits = _text(message.parts[own[-1]]), False
            if named and not (answering or results):
                message = _with_call_hint(message, own, named)
        answering = bool(results) or (answering and message.role != "assistant")
        with_hints.append(message)
    return (*with_hints, _after_results(question)) if waits else tuple(with_hints)


def remove_hints(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Returns the messages with the hints removed."""
    messages_kept = (
        m
        for m in messages
        if not (m.role == "user" and len(m.parts) == 1 and _text(m.parts[0]).startswith(RESULT_HINT))
    )
    return tuple(
        replace(m, parts=tuple(Text(_CALL_LINE.sub("", p.text)) if isinstance(p, Text) else p for p in m.parts))
        if m.role == "user" and _CALL_LINE.search(_text(m.parts[-1]) if m.parts else "")
        else m
        for m in messages_kept
    )


def is_reminder(part: Part) -> bool:
    """Returns whether this is text of an agent itself in a user message."""
    return isinstance(part, Text) and _REMINDER.fullmatch(part.text) is not None


def _with_call_hint(message: Message, own: Sequence[int], named: str) -> Message:
    """Returns the message with the line `named` after its last text of the user's, if it is about files or commands.

    Args:
        message: A message of the user.
        own: Positions of the user's own texts in it.
        named: The line that names the tools.
    """
    parts = list(message.parts)
    if not any(_ABOUT_FILES.search(_text(parts[n])) for n in own):
        return message
    parts[own[-1]] = Text(_text(parts[own[-1]]) + named)
    return replace(message, parts=tuple(parts))


def _after_results(question: str) -> Message:
    cut = question if len(question) <= MAX_QUESTION_CHARS else f"{question[:MAX_QUESTION_CHARS]} …"
    return Message("user", (Text(RESULT_HINT + cut),))


def _results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def _text(part: Part) -> str:
    return part.text if isinstance(part, Text) else ""
