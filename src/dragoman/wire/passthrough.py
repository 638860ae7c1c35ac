"""A stream on its way to a client of the server's own API: whole events as they came, the model as the client calls it.

    splice = Splice(dialect.passing, model="as-the-client-calls-it")
    splice.feed(piece)          # bytes for the client
    splice.over                 # an event has come with which the answer is over
    splice.ending()             # all that has to be read: who speaks, and how it ended

Only whole events leave here, so what breaks off in the middle of one can still be ended with an error, and a ping may
stand between any two pieces.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html (2026-11); what tells the end of a stream is
stated by each dialect (`StreamPassthrough`).
"""

import re
from collections import deque
from typing import Final

import msgspec

from dragoman.core.errors import UpstreamError
from dragoman.wire.passing import StreamPassthrough
from dragoman.wire.sse import EVENT_LIMIT_BYTES

_EVENT: Final = re.compile(rb".*?(?:\n\r?\n|\Z)", re.DOTALL)
_CR_ALONE: Final = re.compile(rb"\r[^\n]")
_DATA: Final = re.compile(rb"^(data: ?)(\{.*\})", re.MULTILINE)
_MODEL: Final = b'"model"'
"""In a string of JSON the quotes have a backslash before them, so this is a member, if not always the one meant."""
_LAST: Final = 4
"""Events that are the end of any stream: why it ended, its usage, the end itself, and a comment between them."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode: Final = msgspec.json.Encoder().encode


class StreamRewriter:
    """One stream."""

    __slots__ = ("_cr", "_last", "_model", "_passing", "_rest", "_unasked", "first", "over")

    def __init__(self, passing: StreamPassthrough, model: str | None = None, *, hides_usage: bool = False) -> None:
        """`model`: what the client calls it, where the server does not. `hides_usage`: it has not asked for it."""
        self._passing = passing
        self._model = model
        self._unasked = passing.unasked if hides_usage else ()
        self._rest = bytearray()
        self._cr = ""
        """Lines end with CR alone: how the last piece ended, `cr` or `other`."""
        self.first = b""
        """The first event."""
        self._last: deque[bytes] = deque(maxlen=_LAST)
        """Pieces that came behind it, of late."""
        self.over = False

    def feed(self, piece: bytes) -> bytes:
        """What the client gets for these bytes.

        Raises: UpstreamError: one event is longer than any may be.
        """
        if self._cr or b"\r" in piece or self._rest.endswith(b"\r"):
            piece = self._lines(piece)
        whole = self._whole(piece)
        if not whole:
            return b""
        if self.first:
            self._last.append(whole)
        else:
            self._begin(whole)
        self.over = self.over or self._ends(whole)
        for told in self._unasked:
            if told in whole:
                whole = b"".join(event for event in _EVENT.findall(whole) if told not in event)
        return self._named(whole) if self._model is not None and _MODEL in whole else whole

    def close(self) -> bytes:
        """What is left where the server has left out the last blank line; half an event is left behind."""
        rest = bytes(self._rest).strip()
        data = self.feed(b"\n\n") if rest == self._passing.end.strip() or _is_whole(rest) else b""
        self.over = self.over or any(self._passing.ends.match(event.lstrip()) for event in self.ending())
        return data

    def ending(self) -> list[bytes]:
        """The first event and the last ones: all that has to be read."""
        pieces = b"".join(self._last)
        at = len(pieces)
        for _ in range(_LAST + 1):
            if at < 0:
                break
            at = max(pieces.rfind(b"\n\n", 0, at), pieces.rfind(b"\n\r\n", 0, at))
        return [self.first, *_EVENT.findall(pieces, max(at, 0))]

    def _lines(self, piece: bytes) -> bytes:
        """The piece with LF for CR, if CR alone ends the stream's lines; a string of JSON holds neither as it is."""
        if not self._cr:
            if not _CR_ALONE.search(self._rest[-1:] + piece):
                return piece
            self._rest = self._rest.replace(b"\r", b"\n")
        elif self._cr == "cr":  # its line has ended
            piece = piece.removeprefix(b"\n")
        self._cr = "cr" if piece.endswith(b"\r") else "other"
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _whole(self, piece: bytes) -> bytes:
        """As much as ends with an event."""
        if not self._rest and piece.endswith(b"\n\n"):  # as nearly always
            return piece
        searched = max(0, len(self._rest) - 2)
        self._rest += piece
        end = max(self._rest.rfind(b"\n\n", searched) + 2, self._rest.rfind(b"\n\r\n", searched) + 3)
        if end <= 2:
            if len(self._rest) > EVENT_LIMIT_BYTES:
                raise UpstreamError(f"expected an event of at most {EVENT_LIMIT_BYTES} bytes, got a longer one")
            return b""
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        return whole

    def _begin(self, whole: bytes) -> None:
        """Comments may come before the first event."""
        first = next((event for event in _EVENT.finditer(whole) if b"data:" in event[0]), None)
        if first is not None:
            self.first = first[0]
            self._last.append(whole[first.end() :])

    def _ends(self, whole: bytes) -> bool:
        """Whether the last of these events is an end; where a comment stands behind it, `close` finds it."""
        last = max(whole.rfind(b"\n\n", 0, -2) + 2, whole.rfind(b"\n\r\n", 0, -3) + 3)
        return self._passing.ends.match(whole, last if last > 2 else 0) is not None

    def _named(self, whole: bytes) -> bytes:
        return _DATA.sub(lambda found: found[1] + named(found[2], self._model or "", self._passing.within), whole)


def _is_whole(event: bytes) -> bool:
    """Whether nothing is missing but the blank line."""
    found = _DATA.search(event)
    try:
        return found is not None and bool(_members(found[2]))
    except (msgspec.DecodeError, RecursionError):
        return False


def named(data: bytes, model: str, within: str = "") -> bytes:
    """This JSON with another model's name in it, or in the member `within`; all else stays as it was written."""
    try:
        members = _members(data)
        if within and within in members:
            members[within] = msgspec.Raw(named(bytes(members[within]), model))
        elif not within and "model" in members:
            members["model"] = msgspec.Raw(_encode(model))
        else:
            return data
    except (msgspec.DecodeError, RecursionError):
        return data
    return _encode(members)
