"""Drops what a client has already received from a response that another replica generates again.

    received   Start  Text "The answ"
    repeated   Start  Text "The answer"  Text " is 42"  Finish
    new                    Text "er"     Text " is 42"  Finish

Both replicas parse the same text of the model, so events differ in their pieces and in the ids of calls only.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from dragoman.core.events import (
    AnyEvent,
    Failure,
    Finish,
    Notice,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UsageUpdate,
)

_Key: TypeAlias = tuple[type, int]
_TEXTS: Final = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta)
_NOT_COMPARED: Final = (Notice, UsageUpdate)


class ReceivedEvents:
    """The events that a client has received, without their text."""

    def __init__(self) -> None:
        self._units: list[tuple[_Key, int]] = []
        """Each event, or run of text, with the number of its characters."""
        self.is_complete = False
        """Whether the response has ended."""

    def add(self, events: Sequence[AnyEvent]) -> None:
        """Adds events that the client receives."""
        for event in events:
            if isinstance(event, _NOT_COMPARED):
                continue
            self.is_complete = isinstance(event, Finish | Failure)
            key, size = _unit(event)
            if size and self._units and self._units[-1][0] == key:
                size += self._units.pop()[1]
            self._units.append((key, size))

    def skipper(self) -> "RepeatedEvents":
        """Returns what drops these events from a repeated response."""
        return RepeatedEvents(list(self._units))


class DivergedError(Exception):
    """The repeated response has other events than the client received."""


class RepeatedEvents:
    """Drops the events that the client has, one response long."""

    def __init__(self, units: list[tuple[_Key, int]]) -> None:
        self._units = units[::-1]

    def new(self, events: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Returns the events that the client does not have.

        Raises: DivergedError: see there.
        """
        return [new for event in events if (new := self._new(event)) is not None]

    def _new(self, event: AnyEvent) -> AnyEvent | None:
        if not self._units:
            return event
        if isinstance(event, _NOT_COMPARED):
            return None
        key, size = _unit(event)
        expected, left = self._units.pop()
        if key != expected:
            raise DivergedError
        if size < left:
            self._units.append((key, left - size))
        elif size > left and self._units:
            raise DivergedError
        elif size > left and isinstance(event, _TEXTS):
            return msgspec.structs.replace(event, text=event.text[left:])
        return None


def _unit(event: AnyEvent) -> tuple[_Key, int]:
    size = len(event.text) if isinstance(event, _TEXTS) else 0
    return (type(event), getattr(event, "index", 0)), size
