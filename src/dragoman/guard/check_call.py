"""Checks and repairs a single tool call, outside of a stream of events."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from dragoman.core import tool_name_match
from dragoman.core.identifiers import valid_call_id
from dragoman.core.messages import Tool, ToolCall
from dragoman.guard import feedback
from dragoman.guard.policy import ALL_REPAIRS
from dragoman.guard.verdict import judge_call


class CheckedCall(NamedTuple):
    """The result of checking one call."""

    calls: tuple[ToolCall, ...]
    """Calls that can be run: one, or several if the call was written for several; empty if it is invalid."""
    repairs: tuple[str, ...] = ()
    """Names of the repairs that were made (docs/guard.md)."""
    valid: bool | None = True
    """Whether the arguments match the schema; None: they could not be checked."""
    reason: str = ""
    """For an invalid call: the message for the model, to be sent as the call's result."""


def check_call(call: ToolCall, tools: Iterable[Tool], disabled_repairs: Collection[str] = ()) -> CheckedCall:
    """Checks a call against the tools that were offered, and repairs it if that is safe.

    Args:
        call: The call as the model wrote it.
        tools: The tools that were offered; only those of kind `function` count.
        disabled_repairs: Names of repairs that are not made.
    """
    steps = frozenset(ALL_REPAIRS).difference(disabled_repairs)
    offered = {tool.name: tool for tool in tools if tool.kind == "function"}
    match = tool_name_match.ToolNames(offered, [step for step in tool_name_match.STEPS if step in steps]).resolve(
        call.name
    )
    if match is None:
        return CheckedCall((), valid=False, reason=feedback.unknown_tool(call.name, offered))
    verdict = judge_call(offered[match.name], call.arguments, steps)
    if verdict.valid is False:
        return CheckedCall((), valid=False, reason=verdict.reason)
    first = replace(call, name=match.name, arguments=verdict.arguments)
    more = (
        replace(first, id=valid_call_id(f"{call.id}_{number}"), arguments=each.arguments)
        for number, each in enumerate(verdict.extra_calls, 2)
    )
    repairs = (*([match.step] if match.step else ()), *verdict.repairs)
    return CheckedCall((first, *more), repairs, verdict.valid, verdict.reason)
