"""When an upstream server that refuses a request because of a limit accepts requests again.

    429, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, ""      360.0
    429, {}, '{"error": {"message": "Usage limit reached, resets 5pm (Europe/Berlin)"}}'    until 17:00 there

`retry-after` is read elsewhere, and precedes all of these. Headers about a limit count only if nothing remains of it.

Source: https://developers.openai.com/api/docs/guides/rate-limits, https://docs.anthropic.com/en/api/rate-limits,
https://ai.google.dev/gemini-api/docs/rate-limits, https://openrouter.ai/docs/api-reference/limits; the messages of
Codex (`usage_limit_reached`) and Claude Code about limits of a plan (2026-11).
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

MAX_RESET_S: Final = 86_400.0
"""A later reset is reported as one day."""
_BODY_CHARS: Final = 4_000
_VALUE_CHARS: Final = 64
_FORBIDDEN: Final = 403
_STATUSES: Final = (_FORBIDDEN, 429)
_ANTHROPIC: Final = ("unified", "requests", "tokens", "input-tokens", "output-tokens")
_OPENAI: Final = ("-requests", "-tokens", "")
_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART: Final = re.compile(
    r" {0,2}(?:, {0,2}|and )?(\d{1,12}(?:\.\d{1,6})?) ?(ms|d|h|m|s)[a-z]{0,10}(?![a-z])", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"\d{1,13}(?:\.\d{1,9})?")
_IN: Final = re.compile(r"\b(?:again|resets?|retry|available)(?: again)? (?:in|after) (?=\d)", re.IGNORECASE)
_DELAY_FIELD: Final = re.compile(r'"(?:resets_in_seconds|retry_after_seconds)" ?: ?(\d{1,9}(?:\.\d{1,9})?)\b')
_TIME_FIELD: Final = re.compile(r'"resets?_?at" ?: ?"?([\w:.+-]{1,40})', re.IGNORECASE)
_RETRY_DELAY: Final = re.compile(r'"retryDelay" ?: ?"(?=\d)')
_EPOCH: Final = re.compile(r"limit reached\|(\d{10,13})\b", re.IGNORECASE)
_CLOCK: Final = re.compile(
    r"\bresets?(?: at)? (?:(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6} (?P<day>\d{1,2}),? "
    r"(?:at )?)?(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))? ?(?P<half>am|pm)?(?![\d:])(?: \((?P<zone>[\w/+-]{1,40})\))?",
    re.IGNORECASE,
)
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def reset_in_s(status: int, headers: Mapping[str, str], body: bytes, now: datetime) -> float | None:
    """Returns the seconds until the limit is reset, at most `MAX_RESET_S`; None: no limit, or the end is not known.

    Args:
        status: The status of the response.
        headers: Its headers, names in lower case.
        body: Its body.
        now: The current time, with a time zone.
    """
    if status not in _STATUSES:
        return None
    found = [*_in_headers(headers, now, is_stated=status == _FORBIDDEN)]
    if not found:
        text = body[: 4 * _BODY_CHARS].decode("utf-8", "replace")[:_BODY_CHARS]
        first = next(_in_text(text, now), None)
        found = [] if first is None else [first]
    delays = [delay for delay in found if delay > 0]
    return min(max(delays), MAX_RESET_S) if delays else None


def _in_headers(headers: Mapping[str, str], now: datetime, *, is_stated: bool) -> Iterator[float]:
    """Yields the seconds of each limit of which nothing remains; `is_stated`: a header must say so."""
    unstated = "" if is_stated else "0"
    for limit in _ANTHROPIC:
        name = f"anthropic-ratelimit-{limit}"
        is_spent = headers.get(f"{name}-remaining") == "0" or headers.get(f"{name}-status") == "rejected"
        if is_spent and (delay := _until(headers.get(f"{name}-reset", ""), now)) is not None:
            yield delay
    for prefix in ("x-ratelimit", "ratelimit"):
        for limit in _OPENAI:
            is_spent = headers.get(f"{prefix}-remaining{limit}", "" if limit else unstated) == "0"
            if is_spent and (delay := _until(headers.get(f"{prefix}-reset{limit}", ""), now)) is not None:
                yield delay


def _in_text(text: str, now: datetime) -> Iterator[float]:
    if match := _DELAY_FIELD.search(text):
        yield float(match[1])
    if (match := _TIME_FIELD.search(text)) and (delay := _until(match[1], now)) is not None:
        yield delay
    for lead in (_RETRY_DELAY, _IN):
        if (match := lead.search(text)) and (delay := _duration_s(text, match.end())) is not None:
            yield delay
    if match := _EPOCH.search(text):
        yield _since_epoch(float(match[1]), now)
    if (match := _CLOCK.search(text)) and (delay := _until_clock(match, now)) is not None:
        yield delay


def _until(value: str, now: datetime) -> float | None:
    """Returns the seconds until a time: seconds or milliseconds since 1970, a date, a number of seconds, `6m0s`."""
    value = value[:_VALUE_CHARS]
    if _NUMBER.fullmatch(value):
        number = float(value)
        return _since_epoch(number, now) if number > 1e9 else number
    if (duration := _duration_s(value, 0)) is not None:
        return duration
    try:
        then = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() - now.timestamp()


def _since_epoch(number: float, now: datetime) -> float:
    return (number / 1000 if number > 1e11 else number) - now.timestamp()


def _duration_s(text: str, at: int) -> float | None:
    """Returns the duration at this position, such as `1h2m` or `3 hours and 20 minutes`, or None."""
    total: float | None = None
    for _ in _UNITS:
        match = _PART.match(text, at)
        if match is None:
            break
        total = (total or 0.0) + float(match[1]) * _UNITS[match[2].lower()]
        at = match.end()
    return total


def _until_clock(match: re.Match[str], now: datetime) -> float | None:
    """Returns the seconds until the next time that a clock shows this, on the stated day if there is one."""
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()
    if not (half or match["minute"]):
        return None  # a number that is not a time
    local = now.astimezone(_zone(match["zone"]))
    try:
        then = local.replace(hour=hour % 12 + 12 * (half == "pm") if half else hour, minute=minute, second=0)
        if match["month"]:
            then = then.replace(month=1 + _MONTHS.index(match["month"].lower()), day=int(match["day"]))
    except ValueError:
        return None
    if then <= local:
        then = then.replace(year=then.year + 1) if match["month"] else then + timedelta(days=1)
    return (then - local).total_seconds()


def _zone(name: str | None) -> tzinfo | None:
    """Returns the zone of this name; None, which is that of the machine, if it is not known."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None
