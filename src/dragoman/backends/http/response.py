"""Reads one upstream response: bytes in, batches of events out, until the response can be stopped.

bytes ─dialect's reader→ events ─RequestNotes→ TextModeReader → StopStrings → ReplyRecorder→ events

Only the stages that the request needs are there; `RequestPlanner.open_response` lists them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, Notice, Start, TextDelta
from dragoman.core.stage import EventPipeline, EventStage
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.dialect import ResponseReader
from dragoman.wire.response_headers import client_headers


class RequestNotes(EventStage):
    """Adds the warnings about the request, and the server's headers for the client; hides secrets in errors."""

    __slots__ = ("_clean", "_headers", "_warnings")

    handles = frozenset((Start, Failure))

    def __init__(
        self,
        warnings: Sequence[Notice],
        headers: Mapping[str, str],
        clean: Callable[[DragomanError], DragomanError],
    ) -> None:
        """
        Args:
            warnings: Warnings about the request, sent after Start.
            headers: Headers of the response; filled by the time the first event arrives.
            clean: Removes secrets from errors.
        """
        self._warnings, self._headers, self._clean = warnings, headers, clean

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events; only the first and the last one of a response are changed."""
        first, last = events[0], events[-1]
        if type(first) is Start:
            events = [
                msgspec.structs.replace(first, headers=client_headers(self._headers)),
                *self._warnings,
                *events[1:],
            ]
        if type(last) is Failure:
            events = [*events[:-1], Failure(self._clean(last.error))]
        return events


class ResponsePipeline:
    """Reads one response."""

    __slots__ = ("_stops", "joins_text", "reader", "stages")

    def __init__(self, reader: ResponseReader, stages: Iterable[EventStage], stops: StopStrings | None = None) -> None:
        """
        Args:
            reader: Parses the bytes of the server's API.
            stages: The stages, in order.
            stops: The one of them that may end the response before the server does.
        """
        self.reader, self._stops = reader, stops
        self.joins_text = True
        """Whether text that arrives together becomes one event."""
        self.stages = EventPipeline(stages)
        """`ended`: the last event has been returned; `finished`: the rest of the upstream response can be discarded."""

    def feed(self, piece: bytes) -> Sequence[AnyEvent]:
        """Returns the events that these bytes complete."""
        events = self.reader.feed(piece)
        return self.stages.feed(join_text(events) if len(events) > 1 and self.joins_text else events)

    def close(self) -> Sequence[AnyEvent]:
        """Returns the last events, also if the response was stopped early."""
        stages = self.stages
        last: list[AnyEvent] = []
        if not stages.finished:
            events = self.reader.close()
            last += stages.feed(join_text(events) if len(events) > 1 and self.joins_text else events)
        if stages.finished and not stages.ended:
            found = ""
            if self._stops is not None:
                last += self._stops.close()
                found = self._stops.found
            last.append(Finish("stop_sequence" if found else "stop", found))
        return last


def join_text(events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
    """Returns the events with each run of text as one event: what arrived together is sent on together."""
    out: list[AnyEvent] = []
    texts: list[str] = []
    for event in events:
        if type(event) is TextDelta:
            texts.append(event.text)
            continue
        if texts:
            out.append(TextDelta("".join(texts)))
            texts = []
        out.append(event)
    if texts:
        out.append(TextDelta("".join(texts)))
    return out
