"""Encoder and decoder of server-sent events; no I/O.

    event: message_start\\n
    data: {"type":"message_start"}\\n
    \\n

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (2026-11).
"""

import re
from typing import Final, NamedTuple

from dragoman.core.errors import UpstreamError

EVENT_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of one event in `Decoder`; a whole response with inline images is well below."""

ERROR: Final = "error"
"""Name of error events, in every API that names events."""
DONE: Final = b"[DONE]"
"""Data of the last event of a stream in OpenAI's APIs."""
_NO_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")


class ServerSentEvent(NamedTuple):
    """One event; its `data` lines are joined by newlines."""

    event: str
    data: bytes


def encode(data: bytes, event: str = "") -> bytes:
    """Returns the bytes of one event; `data` is JSON."""
    data = one_line(data)
    if event:
        return b"event: " + event.encode() + b"\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"


def one_line(json: bytes) -> bytes:
    """Replaces line breaks in JSON by blanks; they are white space between tokens, as in pretty-printed JSON."""
    return json.translate(_NO_LINE_ENDS) if json.find(b"\n") >= 0 or json.find(b"\r") >= 0 else json


def comment(text: str) -> bytes:
    """Returns a comment line, which clients ignore: keeps an idle connection open."""
    return f": {text}\n\n".encode()


class Decoder:
    """Decodes a stream in chunks of any size into events.

    Comments, `id` and `retry` are ignored; lines end with CR, LF or CRLF; a character may be split between chunks. A
    line `error: {…}`, which older versions of llama.cpp's server and its forks send, is an event of that name.
    """

    __slots__ = ("_buf", "_bytes", "_data", "_event", "_first")

    def __init__(self) -> None:
        self._buf = bytearray()  # grows in place: a long line in small chunks stays linear
        self._bytes = 0
        self._data: list[bytes] = []
        self._event = ""
        self._first = True

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Returns the events that this chunk completes.

        Raises:
            UpstreamError: An event is longer than `EVENT_LIMIT_BYTES`; close the connection.
        """
        if len(self._buf) + len(piece) + self._bytes > EVENT_LIMIT_BYTES:
            raise UpstreamError(f"expected an event of at most {EVENT_LIMIT_BYTES} bytes, got a longer one")
        events: list[ServerSentEvent] = []
        for line in self._lines(piece):
            if line:
                self._line(line)
            elif self._data:
                events.append(ServerSentEvent(self._event, b"\n".join(self._data)))
                self._data, self._event, self._bytes = [], "", 0
            else:
                self._event = ""
        return events

    def whole_events(self, piece: bytes) -> list[tuple[bytes, bytes]] | None:
        """Returns name and data of each event of a chunk that contains only whole events, as most chunks do.

        Each event must be one `data` line, or an `event` line and a `data` line. Returns None for any other chunk,
        which must be passed to `feed`.
        """
        if piece[-2:] != b"\n\n" or piece.find(b"\r") >= 0 or len(piece) > EVENT_LIMIT_BYTES:  # `in` takes longer
            return None
        if self._first or self._buf or self._data or self._event:
            return None
        if piece[:6] == b"data: " and piece.find(b"\n") == len(piece) - 2:
            return [(b"", piece[6:-2])]
        events: list[tuple[bytes, bytes]] = []
        for text in piece[:-2].split(b"\n\n"):
            head, separator, data = text.partition(b"data: ")
            if not separator or data.find(b"\n") >= 0:
                return None
            if head and not (head[:7] == b"event: " and head.find(b"\n") == len(head) - 1):
                return None
            events.append((head[7:-1], data))
        return events

    def _lines(self, piece: bytes) -> list[bytes]:
        """Returns the lines that this chunk completes."""
        if not self._buf and b"\r" not in piece:  # the most frequent case; takes a tenth of the time
            *lines, rest = piece.split(b"\n")
            self._buf += rest
            return lines
        searched = max(0, len(self._buf) - 1)  # the buffer contains no line end, except for a CR at its end
        self._buf += piece
        lines, start = [], 0
        for end in _LINE_END.finditer(self._buf, searched):
            lines.append(bytes(self._buf[start : end.start()]))
            start = end.end()
        del self._buf[:start]
        return lines

    def close(self) -> list[ServerSentEvent]:
        """Returns the last event if only its blank line is missing (some servers omit it)."""
        return self.feed(b"\n\n") if self._buf or self._data else []

    def _line(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field in (b"data", b"error"):
            self._data.append(value)
            self._bytes += len(value)
            self._event = self._event if field == b"data" else ERROR
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
