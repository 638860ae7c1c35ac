"""One call by hand: is it right, can it be made so, and what is to be told of it where it cannot."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from dragoman.core import tool_name_match
from dragoman.core.identifiers import legal_id
from dragoman.core.messages import Tool, ToolCall
from dragoman.guard import feedback
from dragoman.guard.policy import STEPS
from dragoman.guard.verdict import judge


class Checked(NamedTuple):
    """What is to be thought of a call."""

    calls: tuple[ToolCall, ...]
    """As it may be run: one, or several where it was written for several; none where it is not right."""
    mended: tuple[str, ...] = ()
    """What was set right in it (docs/guard.md)."""
    valid: bool | None = True
    """None: its arguments could not be held against the schema."""
    why: str = ""
    """What to tell the model, as the call's result, where it is not right."""


def check(call: ToolCall, tools: Iterable[Tool], leave: Collection[str] = ()) -> Checked:
    """The call, held against the tools that were offered; `leave`: steps of mending that are not taken."""
    steps = frozenset(STEPS).difference(leave)
    offered = {tool.name: tool for tool in tools if tool.kind == "function"}
    found = tool_name_match.ToolNames(offered, [step for step in tool_name_match.STEPS if step in steps]).resolve(
        call.name
    )
    if found is None:
        return Checked((), valid=False, why=feedback.unknown(call.name, offered))
    verdict = judge(offered[found.name], call.arguments, steps)
    if verdict.valid is False:
        return Checked((), valid=False, why=verdict.why)
    first = replace(call, name=found.name, arguments=verdict.arguments)
    more = (
        replace(first, id=legal_id(f"{call.id}_{number}"), arguments=each.arguments)
        for number, each in enumerate(verdict.more, 2)
    )
    mended = (*([found.step] if found.step else ()), *verdict.steps)
    return Checked((first, *more), mended, verdict.valid, verdict.why)
