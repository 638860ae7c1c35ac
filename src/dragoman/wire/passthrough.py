"""Passthrough of a stream to a client of the server's own API: events unchanged, only the model name is replaced.

    stream = StreamRewriter(dialect.passthrough, model="as-the-client-calls-it")
    stream.feed(piece)         # bytes for the client
    stream.finished            # an event that ends the response has arrived
    stream.boundary_events()   # the first and last events, the only ones that must be parsed

Only whole events are returned, so a stream that breaks off inside an event can still be ended with an error event, and
a ping may be inserted between any two chunks.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (2026-11). Each dialect describes the end of its
stream (`StreamPassthrough`).
"""

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec

from dragoman.core.errors import UpstreamError
from dragoman.wire.sse import EVENT_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class StreamPassthrough:
    """How to forward one API's SSE stream without parsing each event."""

    end_pattern: re.Pattern[bytes]
    """Matches an event that ends a response, the API's own error included; matched at the start of an event."""
    end_event: bytes = b""
    """The event to append if it is the only one missing at the end; empty: the last event contains more than that."""
    model_container: str = ""
    """The field of an event that contains the response, and so the model's name; empty: the event itself."""
    usage_request: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Fields that a streaming request must have so that the server reports token usage."""
    usage_only_markers: tuple[bytes, ...] = ()
    """Markers of events that exist only to report usage; they are removed for clients that did not request usage."""
    rewrite_error: Callable[[bytes, Sequence[bytes]], bytes] | None = None
    """Rewrites an event of the gateway to fit after the server's first and last events; None: written unchanged."""


_EVENT_END: Final = re.compile(rb"\n\r?\n")
_CR_ALONE: Final = re.compile(rb"\r[^\n]")
_DATA: Final = re.compile(rb"^(data: ?)(\{.*\})", re.MULTILINE)
_MODEL: Final = b'"model"'
"""Inside a JSON string the quotes would be escaped, so this is a field, though not always the one meant."""
_MAX_END_EVENTS: Final = 4
"""Maximum events at the end of a stream: finish reason, usage, the end event, and a comment between them."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


class StreamRewriter:
    """Rewrites one stream, chunk by chunk."""

    __slots__ = ("_cr", "_last", "_model", "_passthrough", "_rest", "_usage_only_markers", "finished", "first")

    def __init__(self, passthrough: StreamPassthrough, model: str | None = None, *, hides_usage: bool = False) -> None:
        """Creates a rewriter.

        Args:
            passthrough: Description of the API's stream.
            model: The client's name of the model if the server uses another one.
            hides_usage: The client did not request usage: events that only report it are removed.
        """
        self._passthrough = passthrough
        self._model = model
        self._usage_only_markers = passthrough.usage_only_markers if hides_usage else ()
        self._rest = bytearray()
        self._cr = ""
        """If lines end with CR alone: how the last chunk ended, `cr` or `other`."""
        self.first = b""
        """The first event."""
        self._last: deque[bytes] = deque(maxlen=_MAX_END_EVENTS)
        """The most recent chunks after it."""
        self.finished = False

    def feed(self, piece: bytes) -> bytes:
        """Returns the bytes for the client.

        Raises:
            UpstreamError: An event is longer than `EVENT_LIMIT_BYTES`.
        """
        if self._cr or piece.find(b"\r") >= 0 or self._rest.endswith(b"\r"):  # `in` takes longer than `find`
            piece = self._lines(piece)
        events = self._rewrite_complete(piece)
        if not events:
            return b""
        if self.first:
            self._last.append(events)
        else:
            self._begin(events)
        self.finished = self.finished or self._is_end(events)
        for marker in self._usage_only_markers:
            if events.find(marker) >= 0:
                events = b"".join(event for event in _split_events(events) if marker not in event)
        return self._with_model_name(events) if self._model is not None and events.find(_MODEL) >= 0 else events

    def close(self) -> bytes:
        """Returns the last event if the server omitted its final blank line; an incomplete event is discarded."""
        rest = bytes(self._rest).strip()
        is_whole = bool(rest) and (rest == self._passthrough.end_event.strip() or _is_complete(rest))
        data = self.feed(b"\n\n") if is_whole else b""
        self.finished = self.finished or any(
            self._passthrough.end_pattern.match(event.lstrip()) for event in self.boundary_events()
        )
        return data

    def boundary_events(self) -> list[bytes]:
        """Returns the first event and the last ones, the only ones that must be parsed."""
        return [self.first, *_split_events(b"".join(self._last))[-_MAX_END_EVENTS - 1 :]]

    def _lines(self, piece: bytes) -> bytes:
        """Replaces CR by LF if CR alone ends the lines; JSON strings contain neither character unescaped."""
        if not self._cr:
            if not _CR_ALONE.search(self._rest[-1:] + piece):
                return piece
            self._rest = self._rest.replace(b"\r", b"\n")
        elif self._cr == "cr":  # its line has ended
            piece = piece.removeprefix(b"\n")
        self._cr = "cr" if piece.endswith(b"\r") else "other"
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _rewrite_complete(self, piece: bytes) -> bytes:
        """Returns the bytes up to the end of the last whole event."""
        if not self._rest and piece.endswith(b"\n\n"):  # the most frequent case
            return piece
        searched = max(0, len(self._rest) - 2)
        self._rest += piece
        end = max(self._rest.rfind(b"\n\n", searched) + 2, self._rest.rfind(b"\n\r\n", searched) + 3)
        if end <= 2:
            if len(self._rest) > EVENT_LIMIT_BYTES:
                raise UpstreamError(f"expected an event of at most {EVENT_LIMIT_BYTES} bytes, got a longer one")
            return b""
        events = bytes(self._rest[:end])
        del self._rest[:end]
        return events

    def _begin(self, events: bytes) -> None:
        """Finds the first event after any comments."""
        split = _split_events(events)
        for i, event in enumerate(split):
            if b"data:" in event:
                self.first = event
                self._last.append(b"".join(split[i + 1 :]))
                return

    def _is_end(self, events: bytes) -> bool:
        """Whether the last of these events ends the response; if a comment follows it, `close` detects it."""
        start = 0
        if events.find(b"\n") < len(events) - 2:  # several lines
            start = events.rfind(b"\n\n", 0, -2) + 2
            start = max(start, events.rfind(b"\n\r\n", start, -3) + 3)
        return self._passthrough.end_pattern.match(events, start if start > 2 else 0) is not None

    def _with_model_name(self, events: bytes) -> bytes:
        return _DATA.sub(
            lambda match: match[1] + replace_model_name(match[2], self._model or "", self._passthrough.model_container),
            events,
        )


def _split_events(data: bytes) -> list[bytes]:
    """Returns each event with the blank line after it, and what follows the last blank line."""
    ends = [0, *(match.end() for match in _EVENT_END.finditer(data)), len(data)]
    return [data[start:end] for start, end in pairwise(ends)]


def _is_complete(event: bytes) -> bool:
    """Whether only the blank line is missing."""
    match = _DATA.search(event)
    try:
        return match is not None and bool(_members(match[2]))
    except (msgspec.DecodeError, RecursionError):
        return False


def replace_model_name(data: bytes, model: str, container: str = "") -> bytes:
    """Returns the JSON with another model name in it, or in its member `container`; the rest is not changed."""
    try:
        members = _members(data)
        if container and container in members:
            members[container] = msgspec.Raw(replace_model_name(bytes(members[container]), model))
        elif not container and "model" in members:
            members["model"] = msgspec.Raw(_encode(model))
        else:
            return data
    except (msgspec.DecodeError, RecursionError):
        return data
    return _encode(members)
