"""Finds the previous request of a conversation among the captures.

Of the same session, or without one of any, it is the request with the most messages in common at its beginning.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dragoman.console.exchange.lanes.request_diff import common_messages
from dragoman.console.exchange.lanes.request_parts import ParsedRequest, parse_request
from dragoman.identify.client import SESSION_LIMIT_CHARS

MAX_SEARCHED: Final = 100
"""Number of earlier captures that are searched."""
_LARGE_BYTES: Final = 1024 * 1024
"""Reading JSON of this size in a thread would block the event loop for over 20 ms."""
_SESSION_HEADERS: Final = ("x-session-id", "x-session-affinity", "session-id", "session_id", "x-claude-code-session-id")
ReadFile = Callable[[str, str], bytes | None]
"""Returns a file of the capture of a request id; None: it was not captured."""


class PreviousRequest(NamedTuple):
    """The previous request of a conversation."""

    id: str
    body: bytes


class _Head(msgspec.Struct):
    path: str = ""
    headers: dict[str, str] = {}


def find_previous(head: bytes, body: bytes, earlier: Iterable[str], read: ReadFile) -> PreviousRequest | None:
    """Returns the previous request of the conversation; None: it is not captured.

    Args:
        head: The file `request.json` of the request.
        body: Its body.
        earlier: The request ids of earlier captures, the newest first.
        read: Reads a file of a capture.
    """
    own, parsed = _head(head), parse_request(body)
    if parsed is None or not parsed.messages:
        return None
    session = _session(own, parsed)
    best: tuple[int, PreviousRequest] | None = None
    for _, id in zip(range(MAX_SEARCHED), earlier, strict=False):
        candidate, data = _head(read(id, "request.json")), read(id, "body")
        if candidate.path != own.path or not data or _is_skipped(own, body, candidate, data):
            continue
        if (other := parse_request(data)) is None:
            continue
        their_session = _session(candidate, other)
        if session and their_session and session != their_session:
            continue
        count = common_messages(other, parsed)
        if count and (best is None or count > best[0]):
            best = count, PreviousRequest(id, data)
        if count and count == len(other.messages):  # this request is that one plus an addition
            break
    return best[1] if best else None


def _is_skipped(own: _Head, body: bytes, candidate: _Head, data: bytes) -> bool:
    """Whether a request is too large to be read for a small one, which rarely continues it."""
    session = _header_session(own)
    return len(body) < _LARGE_BYTES <= len(data) and not (session and session == _header_session(candidate))


def _header_session(head: _Head) -> str:
    return next(filter(None, map(head.headers.get, _SESSION_HEADERS)), "")


def _head(data: bytes | None) -> _Head:
    try:
        return msgspec.json.decode(data or b"{}", type=_Head)
    except msgspec.DecodeError:
        return _Head()


def _session(head: _Head, parsed: ParsedRequest) -> str:
    """Returns the agent's id of the conversation; empty: the agent sends no id."""
    settings: Mapping[str, Any] = parsed.settings[0].value if parsed.settings else {}
    metadata = settings.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    named = [head.headers.get(name) for name in _SESSION_HEADERS]
    found = next((each for each in (*named, settings.get("prompt_cache_key"), user) if isinstance(each, str)), "")
    return found[: 4 * SESSION_LIMIT_CHARS]
