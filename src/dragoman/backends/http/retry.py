"""Which failures a server is asked again after, and how long to wait before.

Nothing has gone on to the client then, and an answer changes nothing, so any may be asked for again; the question is
only where that can help. It can where a server says "not now" (408, 409, 429, 500, 502, 503, 504, 529, and a proxy's
520 to 524) or could not be reached. It cannot where an account is empty, where the server says so in `x-should-retry`,
or where it was silent for as long as was waited for it: it may still be at work on the first.

    wait for the n-th time: 0.5 s · 2ⁿ, at most 8 s, less up to a quarter by chance; `retry-after` of the server goes
    before that, and where it is longer than `LONGEST_TOLD_S` the client is told it instead.

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

from dragoman.core.errors import BackendError, DragomanError, UpstreamError

LONGEST_TOLD_S: Final = 3.0
"""Below `server.hold_s`: after that the client's status is 200, while it knows what to do with a 429 and its time."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 8.0
_BY_CHANCE: Final = 0.25
_LONGEST_S: Final = 86400.0
"""A server that asks for more than a day is told of as asking for that."""
_STATUSES: Final = frozenset({408, 409, 429, 500, 502, 503, 504, *range(520, 525), 529})
_IN_VAIN: Final = re.compile(r"insufficient_quota|exceeded your current quota", re.IGNORECASE)
"""A 429 of OpenAI's that is about money (https://developers.openai.com/api/docs/guides/error-codes, 2026-11)."""


class FailedError(Exception):
    """One try came to nothing."""

    def __init__(self, error: DragomanError, *, dropped: bool = False, for_good: bool = False) -> None:
        super().__init__(error)
        self.error = error
        self.dropped = dropped
        """The connection was closed in place of an answer, as one that was kept open is at some time."""
        self.for_good = for_good
        """The server says that it need not be asked again."""


def wait_s(failed: FailedError, tried: int, retries: int, chance: float) -> float | None:
    """Seconds to wait before the server is asked once more, after it was `tried` before; None: it is not.

    `chance` lies between 0 and 1. After a connection that was kept open had just been closed, one more try is at once
    and for free.
    """
    error = failed.error
    if failed.dropped and tried == 0:
        return 0.0
    if tried >= retries or failed.for_good or not _may_help(error):
        return None
    if error.retry_after_s is not None:
        return error.retry_after_s if error.retry_after_s <= LONGEST_TOLD_S else None
    usual = min(_FIRST_WAIT_S * 2.0**tried, _LONGEST_WAIT_S)
    return usual * (1 - _BY_CHANCE * chance)


async def pause(wait_s: float) -> None:
    """Let the time go by; a name of its own, so that tests need not."""
    await asyncio.sleep(wait_s)


def _may_help(error: DragomanError) -> bool:
    if isinstance(error, UpstreamError):
        return error.status in _STATUSES and not _IN_VAIN.search(error.message)
    return isinstance(error, BackendError)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """What a server asks for in `retry-after-ms`, or `retry-after` in seconds or as a date; None where it does not."""
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    told = headers.get("retry-after", "")
    if (seconds := _number(told)) is not None:
        return seconds
    try:
        then = parsedate_to_datetime(told)
        return max(0.0, (then - now).total_seconds()) if then.tzinfo else None
    except (ValueError, OverflowError):  # the second of a year, or an hour, that there is not
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return min(number, _LONGEST_S) if math.isfinite(number) and number >= 0 else None
