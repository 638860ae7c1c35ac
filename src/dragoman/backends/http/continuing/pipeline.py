"""Reads one upstream response: bytes in, batches of events out; if the server fails, others continue its text."""

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from dragoman.backends.continuation import TextContinuation, is_outage
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Failure, Finish, TextDelta
from dragoman.core.messages import Request
from dragoman.core.stage import EventPipeline, EventStage
from dragoman.text.stop_strings import StopStrings
from dragoman.wire.dialect import ResponseReader


class ResponsePipeline:
    """Reads one response."""

    __slots__ = ("_stops", "joins_text", "reader", "stages")

    failure: DragomanError | None = None
    """Why the server failed, if it reported that itself and another one can continue the text."""

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

    def close(self, broken: DragomanError | None = None) -> Sequence[AnyEvent]:
        """Returns the last events, also if the response was stopped early.

        Args:
            broken: The error that ended the connection; None: the server has ended it.

        Raises:
            DragomanError: This error, unless the response lacks only the end of its HTTP body.
        """
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
        if broken is not None and not (last and type(last[-1]) is Finish):
            raise broken
        return last

    def rest(self, error: DragomanError) -> EventStream:
        """Yields what follows a `failure`.

        Args:
            error: The failure.

        Raises:
            DragomanError: The failure, if the response cannot be continued.
        """
        raise error


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


class ContinuableResponse(ResponsePipeline):
    """Reads one response, and records the model's text."""

    __slots__ = ("_context", "_request", "_texts", "failure")

    def __init__(
        self,
        reader: ResponseReader,
        stages: Iterable[EventStage],
        stops: StopStrings | None,
        request: Request,
        context: ExchangeContext,
    ) -> None:
        """
        Args:
            reader: Parses the bytes of the server's API.
            stages: The stages, in order.
            stops: The one of them that may end the response before the server does.
            request: The request.
            context: The exchange.
        """
        super().__init__(reader, stages, stops)
        self._request, self._context = request, context
        self._texts: list[str] = []
        self.failure = None

    def feed(self, piece: bytes) -> Sequence[AnyEvent]:
        """Returns the events that these bytes complete."""
        return self._pass(self.reader.feed(piece))

    def close(self, broken: DragomanError | None = None) -> Sequence[AnyEvent]:
        """Returns the last events; an error that is not about the request is not among them, but in `failure`.

        Args:
            broken: The error that ended the connection; None: the server has ended it.
        """
        stages = self.stages
        if stages.finished:
            return super().close()
        if stages.ended or self.failure is not None:
            return ()
        last = self._pass(self.reader.close())
        if broken is not None and not (last and type(last[-1]) is Finish):
            self.failure = broken
        return last

    def _pass(self, events: Sequence[AnyEvent]) -> Sequence[AnyEvent]:
        for event in events:
            if type(event) is TextDelta:
                self._texts.append(event.text)
        last = events[-1] if events and (self.stages.started or len(events) > 1) else None
        if type(last) is Failure and is_outage(last.error):
            self.failure, events = last.error, events[:-1]
        return self.stages.feed(join_text(events) if len(events) > 1 else events)

    async def rest(self, error: DragomanError) -> EventStream:
        """Yields the rest of the response from other servers, or from this one once it is back.

        Args:
            error: Why the server failed.

        Raises:
            DragomanError: The response cannot be continued, and another server may generate all of it.
        """
        stages, replicas = self.stages, self._context.attempts.replicas
        if not (stages.started and replicas and is_outage(error)) or (len(replicas) > 1 and not any(self._texts)):
            raise error
        try:
            async with aclosing(TextContinuation(self._request, self._texts, self._context).events(error)) as batches:
                async for batch in batches:
                    if events := stages.feed(batch):
                        yield events
                    if stages.finished:
                        break
        except DragomanError as raised:
            yield stages.feed([Failure(raised)])
        if stages.finished:
            yield super().close()
