"""When a server that refuses because of a limit accepts requests again."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.backends.http.quota_reset import MAX_RESET_S, reset_in_s

NOW = datetime(2026, 11, 26, 14, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())
HOUR = 3600.0


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected"),
    [
        (429, {}, "", None),
        (500, {"x-ratelimit-reset": "60"}, "try again in 5m", None),
        (429, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        (429, {"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, "", None),
        (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3.5s"}, "", 3723.5),
        (429, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, "", 0.02),
        (429, {"x-ratelimit-reset": str(EPOCH + 60)}, "", 60),
        (429, {"x-ratelimit-reset": str((EPOCH + 60) * 1000)}, "", 60),
        (429, {"x-ratelimit-remaining": "5", "x-ratelimit-reset": "60"}, "", None),
        (429, {"ratelimit-remaining": "0", "ratelimit-reset": "60"}, "", 60),
        (
            429,
            {"anthropic-ratelimit-tokens-remaining": "0", "anthropic-ratelimit-tokens-reset": "2026-11-26T14:05:00Z"},
            "",
            300,
        ),
        (
            429,
            {"anthropic-ratelimit-unified-status": "rejected", "anthropic-ratelimit-unified-reset": str(EPOCH + 7200)},
            "",
            2 * HOUR,
        ),
        (429, {}, '{"error": {"type": "usage_limit_reached", "resets_at": 1, "resets_in_seconds": 7200}}', 2 * HOUR),
        (429, {}, '{"error": {"type": "usage_limit_reached", "resets_in_seconds": 7200}}', 2 * HOUR),
        (429, {}, f'{{"error": {{"resets_at": {EPOCH + 90}}}}}', 90),
        (429, {}, "Rate limit reached for gpt-5 on tokens per min. Please try again in 1h12m36s. Visit", 4356),
        (429, {}, "You have hit your limit. Try again in 3 hours 20 minutes.", 12000),
        (403, {}, "quota used up; reset in 3 h", 3 * HOUR),
        (403, {}, "you may not use this model", None),
        (429, {}, '{"error": {"details": [{"retryDelay": "34s"}]}}', 34),
        (429, {}, "Please retry in 34.07s.", 34.07),
        (429, {}, f"Claude AI usage limit reached|{EPOCH + 600}", 600),
        (429, {}, "You've hit your session limit · resets 5pm (UTC)", 3 * HOUR),
        (429, {}, "5-hour limit reached · resets 5:30pm (Europe/Berlin)", 2.5 * HOUR),
        (429, {}, "limit reached, resets 2am (UTC)", 12 * HOUR),
        (429, {}, "weekly limit reached, resets Nov 27 at 9am (UTC)", 19 * HOUR),
        (429, {}, "weekly limit reached, resets Dec 24, 9am (UTC)", MAX_RESET_S),
        (429, {}, "resets 23:15 (UTC)", 9.25 * HOUR),
        (429, {}, "resets 99:99 (UTC)", None),
        (429, {}, "it resets 5 counters", None),
        (429, {}, "try again in 90 days", MAX_RESET_S),
    ],
)
def test_end_of_limit_is_read(status: int, headers: dict[str, str], body: str, expected: float | None) -> None:
    found = reset_in_s(status, headers, body.encode(), NOW)
    assert found == (None if expected is None else pytest.approx(expected))


@given(
    st.dictionaries(st.sampled_from(["x-ratelimit-reset", "anthropic-ratelimit-unified-reset"]), st.text()), st.binary()
)
def test_any_response_has_reset_within_bounds(headers: dict[str, str], body: bytes) -> None:
    found = reset_in_s(429, headers | {"anthropic-ratelimit-unified-status": "rejected"}, body, NOW)
    assert found is None or 0 < found <= MAX_RESET_S


@pytest.mark.parametrize("part", ["resets ", "try again in 1h", "1h", "limit reached|", '"resets_at":"', " " * 9])
def test_cost_is_bounded(part: str) -> None:
    body: Any = (part * 1_000_000)[:4_000_000].encode()
    began_s = time.process_time()
    reset_in_s(429, {"x-ratelimit-reset": part * 10_000}, body, NOW)
    assert time.process_time() - began_s < 0.2
