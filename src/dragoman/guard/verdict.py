"""What is to be thought of one call that is whole."""

from collections.abc import Collection
from typing import NamedTuple

from dragoman.core.events import ToolCallEnd, ToolCallStart
from dragoman.core.messages import JsonText, Tool
from dragoman.guard import feedback
from dragoman.guard.compiled_schema import compiled, parsed
from dragoman.guard.repair import Mended, mend
from dragoman.guard.repair_spread import spread


class OpenCall:
    """A call on its way."""

    def __init__(self, start: ToolCallStart, step: str, held: bool) -> None:
        self.start, self.step, self.held = start, step, held
        self.pieces: list[str] = []
        self.chars = 0

    @property
    def arguments(self) -> str:
        """As far as they have come."""
        return "".join(self.pieces)

    def ended(self, end: ToolCallEnd) -> ToolCallStart:
        """Its start: if nothing of it is out, under the id that the model wrote last."""
        self.start = end.named(self.start) if self.held else self.start
        return self.start


class Verdict(NamedTuple):
    """Of a call's arguments."""

    arguments: JsonText
    """As they may go out."""
    steps: tuple[str, ...] = ()
    """What was set right in them."""
    valid: bool | None = True
    """None: that cannot be told."""
    why: str = ""
    """What the model is told where they are not; where it cannot be told, why."""
    more: tuple[Mended, ...] = ()
    """Of calls that this one was meant to be, too."""


def judge(tool: Tool, arguments: JsonText, steps: Collection[str]) -> Verdict:
    """Whether they are of the tool's schema; mended by these steps where they are not and can be."""
    schema = compiled(tool.parameters)
    match schema.valid(arguments):
        case True:
            return Verdict(arguments)
        case None:
            return Verdict(arguments, valid=None, why=schema.why or "its arguments are beyond what is looked at")
    if steps and (mended := mend(arguments, schema, steps)):
        return Verdict(mended.arguments, mended.steps)
    if steps and (several := spread(arguments, schema, steps)):
        first, *more = several
        return Verdict(first.arguments, first.steps, more=tuple(more))
    try:
        problems = schema.problems(parsed(arguments))
    except ValueError:
        return Verdict(arguments, valid=False, why=feedback.unread(tool.name))
    return Verdict(arguments, valid=False, why=feedback.invalid(tool.name, problems))
