"""Stages of a response: each takes events and returns the events that follow from them.

    pipeline = EventPipeline([guard, usage, client_filter])
    out = pipeline.feed(batch)      # through all stages, in order
    out = pipeline.close_stage(0)   # the end of the response: each stage is closed, through those after it

A batch is a list of events that arrived together; it skips the stages that handle none of its events. Stages are plain
objects, of which only the one that stores responses does I/O; the one loop that reads the backend drives them
(`gateway/response_stream.py`). A stage requests a second response of the model by `reask`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from dragoman.core.events import ALL_EVENTS, AnyEvent, EventType, Failure, Finish, Notice
from dragoman.core.messages import Message, Request, ToolChoice

_ONE_TYPE: Final[Mapping[EventType, Set[EventType]]] = {each: frozenset((each,)) for each in ALL_EVENTS}
"""The types of the events of a batch that is one event, as most are."""


class ReaskRequest(NamedTuple):
    """A request that re-asks the model for what its response lacks."""

    request: Request
    notice: Notice
    """The warning for the client and the log."""
    vote: Callable[[Sequence[AnyEvent]], Hashable | None] | None = None
    """Returns what a second response is compared with others by; None for one that does not help.

    None: such responses cannot be compared.
    """


class LaterRounds(list[Message]):
    """Messages that are added to the conversation during a response: rounds in which the gateway ran tools."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        super().__init__(messages)
        self.number = 0
        """Number of rounds after the first."""
        self.choice = ToolChoice()
        """The tool choice of the last of them, for calls of the client's tools."""

    def begin(self, choice: ToolChoice) -> None:
        """Begins a round with this tool choice; its messages are appended before."""
        self.number += 1
        self.choice = choice


class EventStage:
    """One step that the events of a response pass. The base class passes everything on."""

    __slots__ = ()

    handles: Set[EventType] = ALL_EVENTS
    """Types of the events that the stage reads or changes. Other events of the same batch are passed to it too."""
    finished = False
    """No further event is wanted from the stages before this one, nor from the model."""

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events that these events lead to; may return the same sequence."""
        return events

    def close(self) -> Sequence[AnyEvent]:
        """Returns the events that the end of the response leads to."""
        return ()

    def reask(self) -> ReaskRequest | None:
        """Called before `close`: returns the request for a second response; None: none is needed, as usual."""
        return None

    def merge_reask(self, events: Sequence[AnyEvent], *, failed: bool) -> bool:
        """Takes the events of the second response, before `close`, and returns whether they are used.

        Args:
            events: The events.
            failed: Whether the response broke off, or there was none.
        """
        return False


class EventPipeline:
    """The stages of one response, in order."""

    __slots__ = ("ended", "finished", "stages", "started")

    def __init__(self, stages: Iterable[EventStage]) -> None:
        self.stages = tuple(stages)
        self.started = False
        """Events have come out."""
        self.finished = False
        """A stage wants no further event."""
        self.ended = False
        """Finish or Failure has come out; nothing follows it."""

    def feed(self, events: Sequence[AnyEvent], first: int = 0) -> Sequence[AnyEvent]:
        """Returns what comes out for these events; stages before number `first` are left out.

        Raises:
            DragomanError: The error of a Failure before which nothing has come out.
        """
        if self.ended:
            return ()
        if not events:
            return events
        types = _ONE_TYPE[type(events[0])] if len(events) == 1 else frozenset(map(type, events))
        for stage in self.stages[first:] if first else self.stages:
            if stage.handles.isdisjoint(types):
                continue
            fed, events = events, stage.feed(events)
            if stage.finished:
                self.finished = True
            if events is not fed:
                if not events:
                    return events
                types = frozenset(map(type, events))
        if not self.started and isinstance(events[0], Failure):
            raise events[0].error
        self.started = True
        last = type(events[-1])
        if last is Finish or last is Failure:
            self.ended = True
        return events

    def close_stage(self, number: int) -> Sequence[AnyEvent]:
        """Returns what comes out when this stage is closed. Close the stages in order, each once."""
        return self.feed(self.stages[number].close(), number + 1)
