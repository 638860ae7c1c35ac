"""Decides whether a complete call is valid, can be repaired, or is rejected."""

from collections.abc import Collection
from typing import NamedTuple

from dragoman.core.events import ToolCallEnd, ToolCallStart
from dragoman.core.messages import JsonText, Tool
from dragoman.guard import feedback
from dragoman.guard.repair import RepairedArguments, repair
from dragoman.guard.split_calls import split_into_calls
from dragoman.guard.validation.compiled_schema import compile_schema, decode_arguments


class PendingCall:
    """A call whose events are still arriving."""

    def __init__(self, start: ToolCallStart, step: str, is_buffered: bool) -> None:
        self.start, self.name_repair, self.buffered = start, step, is_buffered
        self.chunks: list[str] = []
        self.chars = 0

    @property
    def arguments(self) -> str:
        """The arguments that have arrived."""
        return "".join(self.chunks)

    def finish(self, end: ToolCallEnd) -> ToolCallStart:
        """Ends the call. Returns its start, with the id that the model wrote last if nothing was sent yet."""
        self.start = end.named(self.start) if self.buffered else self.start
        return self.start

    def repairs(self, end: ToolCallEnd) -> tuple[str, ...]:
        """Returns the names of the repairs that the reader made, and of the repair of the tool's name."""
        return (*end.repairs, *([self.name_repair] if self.name_repair else ()))


class Verdict(NamedTuple):
    """The result of checking a call's arguments."""

    arguments: JsonText
    """The arguments, repaired if that was necessary."""
    repairs: tuple[str, ...] = ()
    """Names of the repairs."""
    valid: bool | None = True
    """Whether they match the schema; None: they could not be checked."""
    reason: str = ""
    """If they do not match, the message for the model; if they could not be checked, the reason."""
    extra_calls: tuple[RepairedArguments, ...] = ()
    """Arguments of further calls that this call was written for."""


def judge_call(tool: Tool, arguments: JsonText, steps: Collection[str]) -> Verdict:
    """Checks arguments against the tool's schema, and repairs them if they do not match.

    Args:
        tool: The tool that is called.
        arguments: The arguments as the model wrote them.
        steps: Names of the repairs that are allowed.
    """
    schema = compile_schema(tool.parameters)
    match schema.valid(arguments):
        case True:
            return Verdict(arguments)
        case None:
            return Verdict(arguments, valid=None, reason=schema.reason or "its arguments are beyond what is looked at")
    if steps and (repaired := repair(arguments, schema, steps)):
        return Verdict(repaired.arguments, repaired.repairs)
    if steps and (several := split_into_calls(arguments, schema, steps)):
        first, *more = several
        return Verdict(first.arguments, first.repairs, extra_calls=tuple(more))
    try:
        violations = schema.violations(decode_arguments(arguments))
    except ValueError:
        return Verdict(arguments, valid=False, reason=feedback.unreadable_call(tool.name))
    return Verdict(arguments, valid=False, reason=feedback.invalid_arguments(tool.name, violations))
