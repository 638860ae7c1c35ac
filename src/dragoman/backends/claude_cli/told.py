"""What the CLI says of an answer that it could not give, as our errors.

    {"type": "result", "is_error": true, "result": "API Error: 529 …", "api_error_status": 529}

Source: the CLI itself, 2.1.329 (tests/data/claude_cli), November 2026.
"""

import re
import time
from typing import Final

import msgspec

from dragoman.backends.claude_cli.process import Line
from dragoman.core.errors import BackendError, DragomanError, UpstreamError
from dragoman.core.upstream_errors import overflow

LOGIN: Final = "claude is not logged in; run: claude login"
_NOT_LOGGED_IN: Final = re.compile(r"not logged in|/login|invalid api key|authentication_error|oauth token", re.I)
_STATUS: Final = re.compile(r"API Error: (\d{3})\b")
_LONGEST: Final = 500


class _Limit(msgspec.Struct):
    status: str = ""
    resets_at: float | None = msgspec.field(default=None, name="resetsAt")


class Limits:
    """What it tells of the subscription's limits."""

    def __init__(self) -> None:
        self._resets_at: float | None = None

    def hear(self, info: msgspec.Raw) -> None:
        """Note when a limit that was hit is lifted."""
        try:
            limit = msgspec.json.decode(info, type=_Limit)
        except msgspec.DecodeError:
            return
        if limit.status == "rejected":
            self._resets_at = limit.resets_at

    @property
    def is_hit(self) -> bool:
        """A limit was hit."""
        return self._resets_at is not None

    def retry_after_s(self) -> float | None:
        """Seconds until it is lifted."""
        return None if self._resets_at is None else max(1.0, self._resets_at - time.time())


def error(line: Line, limits: Limits) -> DragomanError:
    """The error of an answer that ended with this line."""
    said = _text(line.result) or line.subtype.replace("_", " ") or "no reason given"
    told = overflow(said)
    if told is not None:
        return told
    status = _number(line.api_error_status)
    if status is None and (found := _STATUS.search(said)):
        status = int(found[1])
    if status in (None, 401, 403) and _NOT_LOGGED_IN.search(said):
        return UpstreamError(f"{LOGIN} ({said[:_LONGEST]})", status=401)
    if status == 429 or limits.is_hit:
        return UpstreamError(f"claude: {said[:_LONGEST]}", status=429, retry_after_s=limits.retry_after_s())
    if not line.is_error:
        return BackendError("claude ended its turn without an answer")
    return UpstreamError(f"claude: {said[:_LONGEST]}", status=status)


def _text(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""


def _number(raw: msgspec.Raw) -> int | None:
    try:
        return msgspec.json.decode(raw, type=int)
    except msgspec.DecodeError:
        return None
