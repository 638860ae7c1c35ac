"""Times on the command line, such as `7d` (ago), `2026-11-20` or `2026-11-20T10:30`.

Without an offset they are in UTC, as are the days by which records are summed up.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from dragoman.core.errors import ConfigError, quote

TIME_HELP: Final = (
    "7d, 12h or 30m (ago), today, yesterday, 2026-11-20 or 2026-11-20T10:30 (UTC unless it ends in +02:00)"
)
_AGE: Final = re.compile(r"(\d{1,6})([smhdw])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DAYS_AGO: Final = {"now": None, "today": 0, "yesterday": 1}


def parse_time(text: str, now_s: float, option: str) -> float:
    """Returns a time in seconds since 1970.

    Args:
        text: see `TIME_HELP`.
        now_s: the present time.
        option: the option, for the message.

    Raises:
        ConfigError: the text is not a time.
    """
    if age := _AGE.fullmatch(text):
        return now_s - int(age[1]) * _UNITS_S[age[2]]
    if text in _DAYS_AGO:
        days = _DAYS_AGO[text]
        return now_s if days is None else _midnight(now_s) - days * _UNITS_S["d"]
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"expected {TIME_HELP}; got {quote(text)} - at {option}") from None


def format_time(time_s: float) -> str:
    """Returns a time in UTC to the second, without the time of day if it is midnight."""
    time = datetime.fromtimestamp(time_s, UTC)
    is_midnight = time == time.replace(hour=0, minute=0, second=0, microsecond=0)
    return time.strftime("%Y-%m-%d" if is_midnight else "%Y-%m-%d %H:%M:%S")


def _midnight(now_s: float) -> float:
    time = datetime.fromtimestamp(now_s, UTC)
    passed = timedelta(hours=time.hour, minutes=time.minute, seconds=time.second, microseconds=time.microsecond)
    return (time - passed).timestamp()
