"""Which failures are retried, and after which delay."""

from datetime import UTC, datetime

import pytest

from dragoman.backends.http import retry
from dragoman.backends.http.retry import AttemptFailed, retry_after_s
from dragoman.core.errors import (
    BackendUnavailableError,
    ContextOverflowError,
    DragomanError,
    QueueFullError,
    UpstreamError,
    UpstreamTimeoutError,
)


def wait_s(error: DragomanError, tried: int, retries: int, chance: float) -> float | None:
    return retry.retry_delay_s(AttemptFailed(error), tried, retries, chance)


NOW = datetime(2026, 11, 22, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 522, 529])
def test_retryable_status_is_retried(status: int) -> None:
    assert wait_s(UpstreamError("later", status=status), 0, 2, 0.0) == 0.5


@pytest.mark.parametrize("status", [300, 400, 401, 402, 403, 404, 413, 422, 501, None])
def test_non_retryable_status_is_not_retried(status: int | None) -> None:
    assert wait_s(UpstreamError("no", status=status), 0, 2, 0.0) is None


@pytest.mark.parametrize(
    "error",
    [
        ContextOverflowError(5, 4),
        UpstreamTimeoutError("nothing"),
        QueueFullError("full"),
        UpstreamError("You exceeded your current quota, please check your plan", status=429),
        UpstreamError("the server answered 429: insufficient_quota", status=429),
    ],
    ids=lambda error: type(error).__name__,
)
def test_non_retryable_error_is_not_retried(error: DragomanError) -> None:
    assert wait_s(error, 0, 2, 0.0) is None


def test_retry_delay_doubles_with_jitter_up_to_a_quarter() -> None:
    error = BackendUnavailableError("not there")
    assert [wait_s(error, tried, 9, 0.0) for tried in range(7)] == [0.5, 1, 2, 4, 8, 8, 8]
    assert wait_s(error, 0, 9, 1.0) == 0.375
    assert wait_s(error, 2, 2, 0.0) is None
    assert wait_s(error, 0, 0, 0.0) is None


def test_permanent_failure_is_not_retried() -> None:
    assert retry.retry_delay_s(AttemptFailed(UpstreamError("no", status=503), permanent=True), 0, 2, 0.0) is None


def test_closed_connection_is_retried_immediately() -> None:
    dropped = AttemptFailed(BackendUnavailableError("closed"), connection_closed=True)
    assert retry.retry_delay_s(dropped, 0, 0, 0.0) == 0
    assert retry.retry_delay_s(dropped, 1, 1, 0.0) is None
    assert retry.retry_delay_s(dropped, 1, 2, 0.0) == 1


def test_retry_after_takes_precedence_unless_too_long() -> None:
    assert wait_s(UpstreamError("later", status=429, retry_after_s=2.5), 0, 2, 1.0) == 2.5
    assert wait_s(UpstreamError("later", status=429, retry_after_s=0), 0, 2, 1.0) == 0
    assert wait_s(UpstreamError("later", status=429, retry_after_s=4), 0, 2, 1.0) is None


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "Sun, 22 Nov 2026 10:00:30 GMT"}, 30),
        ({"retry-after": "Sun, 22 Nov 2026 09:00:00 GMT"}, 0),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "22 Nov 2026 10:00:30"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1e308"}, 86400),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 +9999999999999"}, None),
        ({"retry-after": "Thu, 01 Jan 9999999999999999999999 00:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_headers_are_parsed(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after_s(headers, NOW) == wait
