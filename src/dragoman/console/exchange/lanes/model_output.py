"""The outputs of models, as they were read: text, reasoning, and the calls that the server itself read."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dragoman.backends.embedded.engine_output import TokenText
from dragoman.console.exchange.lanes.traced_events import TracedEvents
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, TextDelta
from dragoman.core.messages import Request
from dragoman.server.capture.files import event_json, reader_of
from dragoman.server.capture.load import LoadedCapture, output_from_json, request_from_json
from dragoman.wire import sse


class ModelOutputText(NamedTuple):
    """What a model returned to one request."""

    number: int
    """The backend call, from 1."""
    model_request: int
    """The request to the model within that call, from 1."""
    ms: int
    events: TracedEvents
    """What the server's API has: text is as the model wrote it, calls are those that the server read."""
    raw: str
    """The bytes as they arrived, if they are of an API."""
    chunk_count: int
    error: Mapping[str, Any]
    is_abandoned: bool

    @property
    def text(self) -> str:
        """The text of the model."""
        return "".join(self.events.texts("text"))


def model_outputs(capture: LoadedCapture) -> Iterator[ModelOutputText]:
    """Yields the outputs of all requests to models.

    Args:
        capture: The exchange.
    """
    for number in range(1, capture.backend_call_count + 1):
        count = capture.output_count(number)
        for model_request in range(1, count + 1):
            yield _output(capture, number, model_request)
        if not count and (lines := capture.lines(f"{number}/events.jsonl")):  # a backend of which only events are known
            events = TracedEvents(lines)
            yield ModelOutputText(number, 1, lines[0].get("ms", 0), events, "", 0, events.error, is_abandoned=False)


def _output(capture: LoadedCapture, number: int, model_request: int) -> ModelOutputText:
    first, *lines = capture.model_output(number, model_request)
    pieces = [line for line in lines if "ms" in line]
    last = lines[-1] if lines else {}
    target = str(first.get("target", ""))
    if target == "completion":  # the embedded engine
        events = TracedEvents(_of_engine(pieces))
        raw = ""
    else:
        data = [(line["ms"], piece) for line in pieces if isinstance(piece := output_from_json(line), bytes)]
        raw = b"".join(piece for _, piece in data).decode("utf-8", "replace")
        events = TracedEvents(_of_server(target, data, _request(capture, number)))
    return ModelOutputText(
        number,
        model_request,
        first.get("ms", 0),
        events,
        raw,
        len(pieces),
        last.get("error", {}),
        is_abandoned=bool(last.get("abandoned")),
    )


def _of_engine(pieces: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for line in pieces:
        if "text" in line and "finish" not in line:
            yield {"event": "TextDelta", "ms": line["ms"], "text": TokenText(line["text"]).text}


def _request(capture: LoadedCapture, number: int) -> Request:
    try:
        return request_from_json(capture.json(f"{number}/values.json"))
    except DragomanError:
        return Request("", ())


def _of_server(target: str, data: list[tuple[int, bytes]], request: Request) -> Iterator[dict[str, Any]]:
    """Yields the events of a response as its API's own reader has them, each with its time."""
    reader = reader_of(target, request)
    if reader is None:
        for ms, piece in data:
            yield {"ms": ms, **event_json(TextDelta(piece.decode("utf-8", "replace")))}
        return
    for ms, piece in data:
        yield from _timed(ms, reader.feed(piece if target.startswith("/") else sse.encode(piece)))
    yield from _timed(data[-1][0] if data else 0, reader.close())


def _timed(ms: int, events: list[AnyEvent]) -> Iterator[dict[str, Any]]:
    for event in events:
        yield {"ms": ms, **event_json(event)}
