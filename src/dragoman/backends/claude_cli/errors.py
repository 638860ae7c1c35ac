"""Converts the failures that the CLI reports into Dragoman's errors.

    {"type": "assistant", "error": "rate_limit", "api_error_status": 429, "message": {"model": "<synthetic>", …}}
    {"type": "result", "is_error": true, "api_error_status": 429, "result": "API Error: Request rejected (429) · …"}
    {"type": "system", "subtype": "api_retry", "error_status": 429, "retry_delay_ms": 55578, …}
    {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 4102444800, …}}

Source: the CLI itself, 2.1.329 (tests/data/claude_cli), November 2026.
"""

import re
import time
from typing import Final, TypeVar

import msgspec

from dragoman.backends.claude_cli.process import OutputLine
from dragoman.core.errors import BackendUnavailableError, ContextOverflowError, DragomanError, UpstreamError
from dragoman.wire.upstream_errors import context_overflow

_LOGIN_COMMAND: Final = "claude auth login"
"""The login command that the CLI itself names (`claude auth status`, 2.1.329); `claude login` would be a prompt."""
NOT_LOGGED_IN: Final = f"claude is not logged in; run: {_LOGIN_COMMAND}"
_TOO_MANY_REQUESTS: Final = 429
_PAYMENT_REQUIRED: Final = 402
_LONGEST_RETRY_S: Final = 5.0
"""Longest delay of a retry that the CLI may wait by itself; a longer one is reported to the client."""
_NO_LOGIN: Final = re.compile(r"not logged in|/login", re.IGNORECASE)
_TOO_LONG: Final = re.compile(r"prompt is too long(?:.{0,40}?~(\d+) tokens \(limit (\d+)\))?", re.IGNORECASE)
_MAX_MESSAGE_CHARS: Final = 500


class _Limit(msgspec.Struct):
    status: str = ""
    resets_at: float | None = msgspec.field(default=None, name="resetsAt")


class _Block(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    model: str = ""
    content: list[_Block] = []


class OverBudgetError(BackendUnavailableError):
    """The CLI broke off the response because of the budget that only limits further requests."""


class RateLimits:
    """The rate limits of the subscription, as the CLI reports them."""

    def __init__(self) -> None:
        self.is_exceeded = False
        """A limit was reached."""
        self._resets_at: float | None = None

    def update(self, info: msgspec.Raw) -> None:
        """Records when a limit that was reached is lifted."""
        limit = _read(info, _Limit)
        if limit is not None and limit.status == "rejected":
            self.is_exceeded, self._resets_at = True, limit.resets_at

    def retry_after_s(self) -> float | None:
        """Returns the seconds until the limit is lifted, or None if unknown."""
        return None if self._resets_at is None else max(1.0, self._resets_at - time.time())


def error_from_line(line: OutputLine, limits: RateLimits) -> DragomanError | None:
    """Returns the error if the CLI wrote this `assistant` line in place of the model, or None if the model wrote it."""
    word = _read(line.error, str)
    message = _read(line.message, _Message)
    if word is None and (message is None or message.model != "<synthetic>"):
        return None
    text = "".join(block.text for block in message.content) if message is not None else ""
    return _error(text or word or "", word or "", _read(line.api_error_status, int), limits)


def error_from_result(line: OutputLine, limits: RateLimits) -> DragomanError:
    """Returns the error for a `result` line that arrived before the response was complete."""
    text = _read(line.result, str) or line.subtype.replace("_", " ")
    if line.subtype == "error_max_budget_usd":
        return OverBudgetError("claude ended the response early; send the request again", retry_after_s=1.0)
    if not line.is_error:
        return BackendUnavailableError("claude ended its turn without an answer")
    return _error(text, "", _read(line.api_error_status, int), limits)


def long_retry_error(line: OutputLine) -> DragomanError | None:
    """Returns an error if this `api_retry` announces a delay that is too long to wait, else None."""
    delay_ms = _read(line.retry_delay_ms, float) or 0.0
    status = _read(line.error_status, int)
    if status != _TOO_MANY_REQUESTS or delay_ms <= 1000 * _LONGEST_RETRY_S:
        return None
    return UpstreamError("claude: too many requests", status=_TOO_MANY_REQUESTS, retry_after_s=delay_ms / 1000)


def _error(text: str, word: str, status: int | None, limits: RateLimits) -> DragomanError:
    text = text[:_MAX_MESSAGE_CHARS] or "no reason given"
    if match := _TOO_LONG.search(text):
        return ContextOverflowError(*(int(number or 0) for number in match.groups()))
    if (too_long := context_overflow(text)) is not None:
        return too_long
    if status is None and _NO_LOGIN.search(text):
        return UpstreamError(NOT_LOGGED_IN, status=401)
    if word == "authentication_failed" or status in (401, 403):
        return UpstreamError(
            f"claude's credentials were rejected ({text}); run: {_LOGIN_COMMAND}, or correct its API key", status=401
        )
    if word == "billing_error":
        return UpstreamError(f"claude: {text}", status=_PAYMENT_REQUIRED)
    if status == _TOO_MANY_REQUESTS or limits.is_exceeded:
        return UpstreamError(f"claude: {text}", status=_TOO_MANY_REQUESTS, retry_after_s=limits.retry_after_s())
    return UpstreamError(f"claude: {text}", status=status)


_T = TypeVar("_T")


def _read(raw: msgspec.Raw, type: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.DecodeError:
        return None
