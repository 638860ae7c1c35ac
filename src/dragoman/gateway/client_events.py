"""Selects the events that a client's API can represent; events that only another API has become warnings."""

from collections.abc import Sequence
from typing import Final

import msgspec

from dragoman.core.errors import quote
from dragoman.core.events import (
    TEXT_BREAK,
    AnyEvent,
    Detail,
    Finish,
    Notice,
    RefusalDelta,
    Start,
    TextDelta,
    ToolCallStart,
    VendorBlock,
    VendorBlockStart,
)
from dragoman.core.messages import COMPLETE_FINISHES, Request
from dragoman.core.response_details import NON_TEXT_CONTENT, PROGRESS, SERVICE, is_for
from dragoman.core.stage import EventStage
from dragoman.wire.web_sources import WebSourceConverter

_CONTENT_EVENTS: Final = (TextDelta, RefusalDelta, ToolCallStart, VendorBlock, VendorBlockStart)
_ADAPTED: Final = (Start, VendorBlock, VendorBlockStart, Detail)
_UNREPORTED: Final = (*SERVICE, TEXT_BREAK, PROGRESS)


class ClientEventFilter(EventStage):
    """Adapts the events of one response to its client: sets the model's name, drops what the API lacks, and reports an
    empty response.
    """

    __slots__ = ("_has_content", "_reported", "_request", "_sources", "_warnings")

    def __init__(self, request: Request, warnings: tuple[Notice, ...]) -> None:
        """`warnings` are sent after Start."""
        self._request = request
        self._warnings = warnings
        self._reported: set[str] = set()
        """Names of details that a warning was emitted for."""
        self._sources = WebSourceConverter(request.dialect)
        self._has_content = False

    def feed(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        """Returns the events to send for these events."""
        if len(events) == 1 and type(event := events[0]) is TextDelta:  # the most frequent case
            self._has_content = True
            self._sources.chars += len(event.text)
            return events
        out: list[AnyEvent] = []
        for event in events:
            if type(event) is TextDelta:
                self._has_content = True
                self._sources.chars += len(event.text)
                out.append(event)
                continue
            if type(event) is Finish and not self._has_content and event.reason in COMPLETE_FINISHES:
                out.append(Notice("empty_answer", "the response has neither text nor a tool call"))
            self._has_content = self._has_content or _is_content(event)
            for each in self._sources.feed(event) if type(event) in self._sources.handles else (event,):
                if type(each) in _ADAPTED:
                    out += self._adapt(each)
                else:
                    out.append(each)
        return out

    def _adapt(self, event: AnyEvent) -> Sequence[AnyEvent]:
        client = self._request.dialect
        if type(event) is Start:
            return [msgspec.structs.replace(event, model=self._request.model), *self._warnings]
        if type(event) is VendorBlock and event.dialect != client:
            message = f"{client} has no equivalent of a block of type {quote(event.type)}"
            return [Notice("content_dropped", message, event.json, event.type)]
        if type(event) is Detail and not is_for(event.dialect, client):
            if event.name in self._reported or event.name in _UNREPORTED:
                return ()
            self._reported.add(event.name)
            return [Notice("content_dropped", f"{client} has no equivalent of {event.name}", detail=event.name)]
        return (event,)


def _is_content(event: AnyEvent) -> bool:
    """Returns whether a response with this event is not empty."""
    return type(event) in _CONTENT_EVENTS or (type(event) is Detail and event.name in NON_TEXT_CONTENT)
