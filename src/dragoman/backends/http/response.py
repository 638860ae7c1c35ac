"""Reads one upstream response: bytes in, events out, until the response can be stopped."""

from collections.abc import Iterable, Iterator

from dragoman.backends.text_mode.response import TextModeReader
from dragoman.backends.text_mode.verbatim_history import ReplyRecorder
from dragoman.core.events import AnyEvent, Failure, Finish, Start, TextDelta
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.dialect import ResponseReader, UpstreamRequest


class ResponsePipeline:
    """Reads one response; warnings about the request follow right after Start."""

    def __init__(
        self, reader: ResponseReader, outgoing: UpstreamRequest, reread: TextModeReader | None, listener: ReplyRecorder
    ) -> None:
        """
        Args:
            reader: parses the bytes of the server's API.
            outgoing: the request that was sent.
            reread: parses tool calls in the text as the model wrote it; None: the server has parsed it.
            listener: records the text, if there is a `reread`.
        """
        self.reader, self._outgoing, self._reread, self._listener = reader, outgoing, reread, listener
        self._stops = StopStrings(outgoing.stop_locally)
        self.finished = False
        """Whether the last event has been returned."""

    @property
    def can_stop(self) -> bool:
        """True when the rest of the upstream response can be discarded."""
        return bool(self._stops.found) or (self._reread is not None and self._reread.finished)

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """Returns the events that these bytes complete."""
        return self._process(self.reader.feed(piece))

    def close(self) -> list[AnyEvent]:
        """Returns the last events, also if the response was stopped early."""
        last = [] if self.can_stop else self._process(self.reader.close())
        if self.can_stop and not self.finished:
            last += self._stops.close_events()
            last.append(Finish("stop_sequence" if self._stops.found else "stop", self._stops.found))
        return last

    def _process(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        events = self._add_warnings(events)
        out = self._stops.feed_events(self._reread.feed(self._record_text(events)) if self._reread else events)
        if self._reread:
            self._listener.observe(out)
        self.finished = self.finished or (bool(out) and isinstance(out[-1], Finish | Failure))
        return out

    def _add_warnings(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            yield event
            if isinstance(event, Start):
                yield from self._outgoing.warnings

    def _record_text(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            if isinstance(event, TextDelta):
                self._listener.add_text(event.text)
            yield event
