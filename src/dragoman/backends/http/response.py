"""A server's answer being read: its bytes in, events out, up to where enough of it has come."""

from collections.abc import Iterable, Iterator

from dragoman.backends.text_mode.response import Reread
from dragoman.backends.text_mode.verbatim_history import Listener
from dragoman.core.events import AnyEvent, Failure, Finish, Start, TextDelta
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.dialect import ResponseReader, UpstreamRequest


class Reading:
    """One answer; warnings about the request stand right behind Start."""

    def __init__(
        self, reader: ResponseReader, outgoing: UpstreamRequest, reread: Reread | None, listener: Listener
    ) -> None:
        """`reread` reads its text as the model wrote it, for the `listener` to keep; None: the server has read it."""
        self.reader, self._outgoing, self._reread, self._listener = reader, outgoing, reread, listener
        self._stops = StopStrings(outgoing.watched)
        self.ended = False
        """The last event has been given."""

    @property
    def enough(self) -> bool:
        """What still comes is not wanted: whoever reads may leave."""
        return bool(self._stops.found) or (self._reread is not None and self._reread.over)

    def feed(self, piece: bytes) -> list[AnyEvent]:
        """The events that these bytes add."""
        return self._passed(self.reader.feed(piece))

    def close(self) -> list[AnyEvent]:
        """The events that the end adds, also where it was left before."""
        last = [] if self.enough else self._passed(self.reader.close())
        if self.enough and not self.ended:
            last += self._stops.end()
            last.append(Finish("stop_sequence" if self._stops.found else "stop", self._stops.found))
        return last

    def _passed(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        told = self._warned(events)
        passed = self._stops.pass_on(self._reread.pass_on(self._heard(told)) if self._reread else told)
        if self._reread:
            self._listener.gave(passed)
        self.ended = self.ended or (bool(passed) and isinstance(passed[-1], Finish | Failure))
        return passed

    def _warned(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            yield event
            if isinstance(event, Start):
                yield from self._outgoing.warnings

    def _heard(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            if isinstance(event, TextDelta):
                self._listener.wrote(event.text)
            yield event
