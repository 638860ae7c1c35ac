"""Decides whether a complete call is valid, can be repaired, or is rejected."""

from collections.abc import Collection
from typing import NamedTuple

from dragoman.core.events import ToolCallEnd, ToolCallStart
from dragoman.core.messages import JsonText, Tool
from dragoman.guard import feedback
from dragoman.guard.arguments import Arguments
from dragoman.guard.repair import RepairedArguments, repair
from dragoman.guard.validation.compiled_schema import compile_schema


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


def judge_call(tool: Tool, text: JsonText, enabled: Collection[str]) -> Verdict:
    """Checks arguments against the tool's schema, and repairs them if they do not match.

    Args:
        tool: The tool that is called.
        text: The arguments as the model wrote them.
        enabled: Names of the repairs that are allowed.
    """
    schema = compile_schema(tool.parameters)
    if schema.reason:
        return Verdict(text, valid=None, reason=schema.reason)
    arguments = Arguments(text)
    match arguments.valid(schema):
        case True:
            return Verdict(text)
        case None:
            return Verdict(text, valid=None, reason="its arguments are beyond what is looked at")
    if enabled and (repaired := repair(arguments, schema, enabled)):
        first, *more = repaired
        return Verdict(first.arguments, first.repairs, extra_calls=tuple(more))
    if not arguments.is_decodable:
        return Verdict(text, valid=False, reason=feedback.unreadable_call(tool.name))
    reason = feedback.invalid_arguments(tool.name, arguments.violations(schema))
    if tool.loading in ("found", "deferred"):  # not among the tools that the model is shown
        reason = f"{reason} {feedback.schema_of(tool.parameters)}"
    return Verdict(text, valid=False, reason=reason)
