"""Drops calls that the steps do not allow now: of servers that ignore which tools they are offered."""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from dragoman.core.events import (
    CALL_EVENTS,
    AnyEvent,
    Finish,
    Notice,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallIncomplete,
    ToolCallStart,
)
from dragoman.core.messages import Request
from dragoman.core.stage import EventStage
from dragoman.core.tool_name_match import STEPS, ToolNames
from dragoman.steps.rules import UNLIMITED, CallsLeft, calls_left


def call_filter(request: Request, disabled_repairs: Collection[str] = ()) -> "StepCallFilter | None":
    """Returns what drops calls that the steps of a restricted request do not allow; None: it is not restricted.

    Args:
        request: The request.
        disabled_repairs: Repairs that are off: names that differ in such a way are not matched.
    """
    if not request.prompt_tools:
        return None
    tools = request.tools if request.tool_choice.mode != "none" else ()
    allowed = [tool.name for tool in tools if tool.kind == "function"]
    known = [tool.name for tool in request.prompt_tools if tool.kind == "function"]
    names = ToolNames(known, [step for step in STEPS if step not in disabled_repairs])
    return StepCallFilter(allowed, names, calls_left(request))


class StepCallFilter(EventStage):
    """Passes calls of the allowed tools only; a text says why there is no call if none is left."""

    handles = CALL_EVENTS | {Finish, TextDelta}

    def __init__(self, allowed: Sequence[str], names: ToolNames, left: CallsLeft = UNLIMITED) -> None:
        """
        Args:
            allowed: Tools that may be called now.
            names: All tools of the request: the guard may match a name that the model wrote differently.
            left: How many calls the limits allow.
        """
        self._allowed, self._names, self._left = allowed, names, left
        self._may, self._counts = frozenset(allowed), Counter[str]()
        self._index = 0
        """Index of the next call for the client."""
        self._dropped: list[str] = []
        """Name and arguments of the open call that is dropped."""
        self._why = ""
        """Why the last call was dropped; empty: none was."""
        self._has_text = False

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events; a warning takes the place of each dropped call."""
        out: list[AnyEvent] = []
        for event in events:
            match event:
                case ToolCallStart(name=name) if self._drops(name):
                    self._dropped = [f"{name} "]
                case ToolCallDelta(text=text) if self._dropped:
                    self._dropped.append(text)
                case ToolCallEnd() | ToolCallIncomplete() if self._dropped:
                    name = self._dropped[0].strip()
                    message = f"a call of {name} was dropped: the steps do not allow it now"
                    out.append(Notice("step_call_dropped", message, "".join(self._dropped), name))
                    self._dropped = []
                case ToolCallStart() | ToolCallDelta():
                    out.append(replace(event, index=self._index) if self._why else event)
                case ToolCallEnd() | ToolCallIncomplete():
                    out.append(replace(event, index=self._index) if self._why else event)
                    self._index += 1
                case Finish("tool_calls" | "stop") if self._why and not self._index:
                    out += [TextDelta("\n\n" * self._has_text + self._why), replace(event, reason="stop")]
                case _:
                    self._has_text = self._has_text or isinstance(event, TextDelta)
                    out.append(event)
        return out

    def _drops(self, written: str) -> bool:
        """Counts a call, and returns whether it is dropped; one of an unknown tool is not."""
        match = self._names.resolve(written)
        if match is None:
            return False
        name = match.name
        if name in self._may and self._left.allows(name, self._counts):
            self._counts[name] += 1
            return False
        may = f"call {' or '.join(self._allowed)}" if self._allowed else "answer in words"
        self._why = f"[The call of {name} was dropped: the steps of this conversation ask to {may} first.]"
        return True
