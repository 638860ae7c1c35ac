"""Suggests what to change if a text was not read as expected: the last line of `--explain`."""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from dragoman.parsing.trace import Span

AdviceTarget: TypeAlias = Literal["parse", "gateway", "native"]
"""What the advice names: flags of `parse`, settings of a server, or those of a server that parses calls itself."""
NOTHING: Final = "nothing to change"
CHANGE: Final = "to change that: "
_HOLD: Final = (
    'send tool_choice "required", or set tool_mode = "prompt" and provider of the server, which constrains the model '
    "to whole calls where the server can (docs/servers.md)"
)
_LIMIT: Final = "raise max_tokens of the request: the limit ended the text inside a call"
_STOPS: Final = "raise max_tokens of the request, or check its stop sequences: the text ends inside a call"
_REASONING: Final = "turn reasoning off in the request: calls in reasoning that is closed are reasoning"
_MODE: Final = 'set tool_mode = "parse" of the server, so that Dragoman reads the calls'
_FORMAT: Final = re.compile(r"format '(?!auto')(\w+)'")


class ReadContext(NamedTuple):
    """How the text was read."""

    where: AdviceTarget = "parse"
    offered: bool = False
    """There were tools."""
    cut: bool = False
    """The text was cut by a limit."""
    prompt_suffix: str = ""
    """What the prompt had already opened."""


def advice(spans: Sequence[Span], context: ReadContext) -> str:
    """Returns one line: which setting, flag or format to change, or that there is nothing to change."""
    notes = {note.code: note.message for span in spans for note in span.notes}
    kinds: set[str] = {span.kind for span in spans}
    if not "".join(span.raw for span in spans).strip():
        return CHANGE + _empty(context)
    if "incomplete" in kinds or "truncated_call" in notes:
        return CHANGE + _broken(notes, context)
    if "unknown_tool" in notes:
        return CHANGE + _unknown(context)
    if "end" in kinds:
        return f"{NOTHING}: the calls are whole"
    if "other_reading" in notes:
        return CHANGE + _other_format(notes["other_reading"], context)
    if {"call_in_unclosed_code", "call_in_text"} & notes.keys():
        return f"{CHANGE}{_HOLD}; a call in plain JSON counts at the end of the text only"
    return _no_call(kinds, notes, context)


def _empty(context: ReadContext) -> str:
    if context.where == "parse":
        return "give the model's raw text as FILE or on standard input; this one is empty"
    return "check max_tokens and the stop sequences of the request: the model wrote nothing"


def _broken(notes: dict[str, str], context: ReadContext) -> str:
    if "malformed_arguments" in notes:
        return f"{_HOLD}: the call's arguments are malformed"
    if context.cut:
        return _LIMIT
    return f"{_STOPS} (--truncated: a limit ended it)" if context.where == "parse" else _STOPS


def _unknown(context: ReadContext) -> str:
    if context.where == "parse":
        return "add the tool to the file of --tools, or leave --tools out to accept any name"
    return "add the tool to tools of the request, or tell the model which tools there are"


def _other_format(message: str, context: ReadContext) -> str:
    """Returns the advice if another format finds a call."""
    match = _FORMAT.search(message)
    lenient = message.startswith("lenient")
    if context.where == "parse":
        return "--lenient" if lenient or not match else f"--format {match[1]}"
    if context.where == "native" or lenient or not match:
        return _MODE
    return f'set call_format = "{match[1]}" of the server'


def _no_call(kinds: set[str], notes: dict[str, str], context: ReadContext) -> str:
    """Returns the advice if no format finds a call."""
    named = notes.get("no_call", "")
    if named.endswith("reasoning is not searched for calls") or kinds <= {"reasoning", "framing"}:
        tail = (
            "--prompt-suffix '' where the prompt opens no reasoning, or "
            if context.where == "parse" and context.prompt_suffix
            else ""
        )
        if not named:
            return f"{CHANGE}{tail}raise max_tokens of the request: all of the text is reasoning"
        return f"{CHANGE}{tail}{_REASONING}"
    if named:
        return f"{CHANGE}{_HOLD}: the model named a tool, but wrote no whole call"
    if context.where == "parse" and not context.offered:
        return f"{NOTHING} if the text has no call; to find calls in plain JSON: --tools FILE --lenient"
    return f'{NOTHING}: the text has no call; tool_choice "required" of the request makes the model write one'
