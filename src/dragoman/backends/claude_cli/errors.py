"""What the CLI says of an answer that it could not give, as our errors.

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

_RUN: Final = "claude auth login"
"""What logs in, by the CLI's own words (`claude auth status`, 2.1.329); `claude login` would be a prompt."""
LOGIN: Final = f"claude is not logged in; run: {_RUN}"
_TOO_MANY_REQUESTS: Final = 429
_PAYMENT_REQUIRED: Final = 402
_PATIENCE_S: Final = 5.0
"""A pause that the CLI may make on its own; of a longer one the client is told."""
_NO_LOGIN: Final = re.compile(r"not logged in|/login", re.IGNORECASE)
_TOO_LONG: Final = re.compile(r"prompt is too long(?:.{0,40}?~(\d+) tokens \(limit (\d+)\))?", re.IGNORECASE)
_LONGEST: Final = 500


class _Limit(msgspec.Struct):
    status: str = ""
    resets_at: float | None = msgspec.field(default=None, name="resetsAt")


class _Block(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    model: str = ""
    content: list[_Block] = []


class OverBudgetError(BackendUnavailableError):
    """It broke off an answer for the budget that was to keep it from asking again."""


class RateLimits:
    """What it tells of the subscription's limits."""

    def __init__(self) -> None:
        self.is_hit = False
        """One was."""
        self._resets_at: float | None = None

    def hear(self, info: msgspec.Raw) -> None:
        """Note when a limit that was hit is lifted."""
        limit = _read(info, _Limit)
        if limit is not None and limit.status == "rejected":
            self.is_hit, self._resets_at = True, limit.resets_at

    def retry_after_s(self) -> float | None:
        """Seconds until it is lifted, where that is known."""
        return None if self._resets_at is None else max(1.0, self._resets_at - time.time())


def error_from_line(line: OutputLine, limits: RateLimits) -> DragomanError | None:
    """The error that an `assistant` line is, which the CLI wrote in place of the model; None: it is the model's."""
    word = _read(line.error, str)
    message = _read(line.message, _Message)
    if word is None and (message is None or message.model != "<synthetic>"):
        return None
    said = "".join(block.text for block in message.content) if message is not None else ""
    return _error(said or word or "", word or "", _read(line.api_error_status, int), limits)


def error_from_result(line: OutputLine, limits: RateLimits) -> DragomanError:
    """The error of an answer in place of which this `result` came."""
    said = _read(line.result, str) or line.subtype.replace("_", " ")
    if line.subtype == "error_max_budget_usd":
        return OverBudgetError("claude broke off the answer; ask again", retry_after_s=1.0)
    if not line.is_error:
        return BackendUnavailableError("claude ended its turn without an answer")
    return _error(said, "", _read(line.api_error_status, int), limits)


def long_retry_error(line: OutputLine) -> DragomanError | None:
    """The error where this `api_retry` tells of a pause that is too long to sit it out; else None."""
    delay_ms = _read(line.retry_delay_ms, float) or 0.0
    status = _read(line.error_status, int)
    if status != _TOO_MANY_REQUESTS or delay_ms <= 1000 * _PATIENCE_S:
        return None
    return UpstreamError("claude: too many requests", status=_TOO_MANY_REQUESTS, retry_after_s=delay_ms / 1000)


def _error(said: str, word: str, status: int | None, limits: RateLimits) -> DragomanError:
    said = said[:_LONGEST] or "no reason given"
    if found := _TOO_LONG.search(said):
        return ContextOverflowError(*(int(number or 0) for number in found.groups()))
    if (too_long := context_overflow(said)) is not None:
        return too_long
    if status is None and _NO_LOGIN.search(said):
        return UpstreamError(LOGIN, status=401)
    if word == "authentication_failed" or status in (401, 403):
        return UpstreamError(f"claude was not let in ({said}); run: {_RUN}, or mend the key it has", status=401)
    if word == "billing_error":
        return UpstreamError(f"claude: {said}", status=_PAYMENT_REQUIRED)
    if status == _TOO_MANY_REQUESTS or limits.is_hit:
        return UpstreamError(f"claude: {said}", status=_TOO_MANY_REQUESTS, retry_after_s=limits.retry_after_s())
    return UpstreamError(f"claude: {said}", status=status)


_T = TypeVar("_T")


def _read(raw: msgspec.Raw, type: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.DecodeError:
        return None
