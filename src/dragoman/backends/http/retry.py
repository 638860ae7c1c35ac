"""Retry policy: which failures are retried, and how long to wait before.

A request is retried only before the client has got anything, and generating a reply has no side effects, so any request
may be retried; the question is where that helps. It helps where a server says "not now" (408, 409, 429, 500, 502, 503,
504, 529, and a proxy's 520 to 524) or could not be reached. Not retried: an exhausted quota, an error with
`x-should-retry: false`, and a server that was silent until the timeout, as it may still be working on the first
request.

    delay before retry n: 0.5 s · 2ⁿ, at most 8 s, less up to a quarter at random; the server's `retry-after` overrides
    that, and if it is longer than `MAX_SERVER_DELAY_S` the client gets the error with it instead.

Source: what the vendors' own clients do (openai-python and anthropic-sdk-python, `_base_client.py`, `_should_retry` and
`_calculate_retry_timeout`, 2026-11); https://www.rfc-editor.org/rfc/rfc9110#field.retry-after;
https://developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/ (2026-11).
"""

import asyncio
import math
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from dragoman.core.errors import BackendUnavailableError, DragomanError, UpstreamError

MAX_SERVER_DELAY_S: Final = 3.0
"""Below `server.max_status_delay_s`: after that time the client has status 200, while it knows how to handle a 429."""
_FIRST_DELAY_S: Final = 0.5
_MAX_DELAY_S: Final = 8.0
_JITTER: Final = 0.25
_MAX_RETRY_AFTER_S: Final = 86400.0
"""A longer `retry-after` is reported as one day."""
_RETRYABLE_STATUSES: Final = frozenset({408, 409, 429, 500, 502, 503, 504, *range(520, 525), 529})
_QUOTA_EXHAUSTED: Final = re.compile(r"insufficient_quota|exceeded your current quota", re.IGNORECASE)
"""A 429 of OpenAI's that is about billing (https://developers.openai.com/api/docs/guides/error-codes, 2026-11)."""


class AttemptFailed(Exception):
    """One attempt failed."""

    def __init__(self, error: DragomanError, *, connection_closed: bool = False, permanent: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.connection_closed = connection_closed
        """The peer closed the connection before it responded, as happens to kept-alive connections."""
        self.permanent = permanent
        """The server says that a retry does not help."""


def retry_delay_s(failed: AttemptFailed, attempt: int, retries: int, random: float) -> float | None:
    """Returns the seconds to wait before the next attempt; None: no retry.

    If a kept-alive connection had just been closed, the first retry is immediate, also if `retries` is 0.

    Args:
        failed: the failure of the last attempt.
        attempt: number of retries so far.
        retries: maximum number of retries.
        random: random number between 0 and 1, for jitter.
    """
    error = failed.error
    if failed.connection_closed and attempt == 0:
        return 0.0
    if attempt >= retries or failed.permanent or not _is_retryable(error):
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= MAX_SERVER_DELAY_S else None
    usual = min(_FIRST_DELAY_S * 2.0**attempt, _MAX_DELAY_S)
    return usual * (1 - _JITTER * random)


async def sleep(delay_s: float) -> None:
    """Waits; a function of its own so that tests can replace it."""
    await asyncio.sleep(delay_s)


def _is_retryable(error: DragomanError) -> bool:
    if isinstance(error, UpstreamError):
        return error.status in _RETRYABLE_STATUSES and not _QUOTA_EXHAUSTED.search(error.message)
    return isinstance(error, BackendUnavailableError)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns the seconds of `retry-after-ms`, or of `retry-after` in seconds or as a date; None if there is neither.

    Args:
        headers: response headers, names in lower case.
        now: the current time, with a time zone.
    """
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        then = parsedate_to_datetime(value)
        return max(0.0, (then - now).total_seconds()) if then.tzinfo else None
    except (ValueError, OverflowError):  # a date that does not exist
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return min(number, _MAX_RETRY_AFTER_S) if math.isfinite(number) and number >= 0 else None
