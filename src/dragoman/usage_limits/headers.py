"""Headers about the limits of a key, with the names and formats of the vendors.

Source: https://developers.openai.com/api/docs/guides/rate-limits, https://docs.anthropic.com/en/api/rate-limits
(2026-11).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from dragoman.usage_limits.windows import WindowState

UPSTREAM_LIMITS: Final = (b"x-ratelimit-", b"anthropic-ratelimit-", b"ratelimit-")
"""Beginnings of the names of an upstream's headers, which the headers about the key replace."""


def openai_headers(states: Mapping[str, WindowState]) -> dict[str, str]:
    """Returns the headers of OpenAI's APIs for windows of `requests` and `tokens`."""
    fields: dict[str, str] = {}
    for kind, state in states.items():
        fields[f"x-ratelimit-limit-{kind}"] = str(state.limit)
        fields[f"x-ratelimit-remaining-{kind}"] = str(state.remaining)
        fields[f"x-ratelimit-reset-{kind}"] = _duration(state.reset_s)
    return fields


def anthropic_headers(states: Mapping[str, WindowState], now_s: float) -> dict[str, str]:
    """Returns the headers of Anthropic's API for windows of `requests` and `tokens`.

    Args:
        states: The windows.
        now_s: The current time, in seconds since 1970.
    """
    fields: dict[str, str] = {}
    for kind, state in states.items():
        reset = datetime.fromtimestamp(now_s + state.reset_s, UTC)
        fields[f"anthropic-ratelimit-{kind}-limit"] = str(state.limit)
        fields[f"anthropic-ratelimit-{kind}-remaining"] = str(state.remaining)
        fields[f"anthropic-ratelimit-{kind}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
    return fields


def _duration(seconds: float) -> str:
    """Returns a duration as OpenAI writes it: `20ms`, `1.5s`, `1m30s`."""
    if seconds <= 0:
        return "0s"
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"
