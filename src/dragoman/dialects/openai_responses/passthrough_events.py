"""Ends a stream of an upstream server with `response.failed` for the server's own response."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from dragoman.wire import sse

_DATA: Final = b"data:"
_OWN: Final = ("id", "created_at")
"""What the client already knows of the response."""


class _Event(Struct, omit_defaults=True):
    type: str = ""
    sequence_number: int = -1
    response: dict[str, Raw] = {}


def rewrite_error(event: bytes, before: Sequence[bytes]) -> bytes:
    """Returns `response.failed` to follow the server's events: next sequence number, same response."""
    payload, earlier = _read(event), [_read(each) for each in before]
    theirs = next((each.response for each in earlier if each.response), {})
    payload.sequence_number = max((each.sequence_number for each in earlier), default=-1) + 1
    payload.response |= {name: theirs[name] for name in _OWN if name in theirs}
    return sse.encode(msgspec.json.encode(payload), payload.type) if payload.type == "response.failed" else event


def _read(event: bytes) -> _Event:
    """Returns the JSON of an event; empty for a comment or invalid JSON."""
    data = next((line for line in event.splitlines() if line.startswith(_DATA)), b"")
    try:
        return msgspec.json.decode(data.removeprefix(_DATA), type=_Event)
    except (msgspec.DecodeError, RecursionError):
        return _Event()
