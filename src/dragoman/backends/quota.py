"""Models of an upstream server that have reached a limit: they get no requests until it is reset.

    quota.observe(model, error)     an error that tells when the limit is reset
    quota.ensure_available(model)        raises until then, so that another model is used at once

Once in ten minutes a request is sent all the same, as limits are also raised, and messages about them misread.
"""

import hashlib
import math
import struct
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dragoman.core.errors import UpstreamError, quote

TRIAL_S: Final = 600.0
"""Time after which a request is sent in spite of the limit."""
MIN_BLOCK_S: Final = 60.0
"""After a shorter time the next request finds out whether the limit is reset."""
MAX_BLOCK_S: Final = 86_400.0
_MAX_MODELS: Final = 64
_STATUSES: Final = (403, 429)
_SLOT: Final = struct.Struct("Qd")


class QuotaTimes:
    """For each model the time until which it gets no requests, in the memory of this process."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def get(self, model: str) -> float:
        """Returns the time of this model; 0: it has not reached a limit."""
        return self._until_s.get(model, 0.0)

    def set(self, model: str, until_s: float) -> None:
        """Sets the time of this model; the oldest one of too many is forgotten."""
        self._until_s.pop(model, None)
        if until_s:
            self._until_s[model] = until_s
            if len(self._until_s) > _MAX_MODELS:
                del self._until_s[next(iter(self._until_s))]


class SharedQuotaTimes(QuotaTimes):
    """The times in a file that all processes of a gateway map; models with the same slot replace each other."""

    def __init__(self, path: Path) -> None:
        from dragoman.shared_files import map_file

        self._file = map_file(path, _MAX_MODELS * _SLOT.size)

    def get(self, model: str) -> float:
        """Returns the time of this model; 0: it has not reached a limit."""
        name, offset = _slot(model)
        found, until_s = _SLOT.unpack_from(self._file, offset)
        return float(until_s) if found == name else 0.0

    def set(self, model: str, until_s: float) -> None:
        """Sets the time of this model."""
        from dragoman.shared_files import write_mapped

        name, offset = _slot(model)
        write_mapped(self._file, offset, _SLOT.pack(name, until_s))


def _slot(model: str) -> tuple[int, int]:
    """Returns a number that stands for the model, and the position of its slot."""
    name = int.from_bytes(hashlib.blake2b(model.encode("utf-8", "replace"), digest_size=8).digest())
    return name, name % _MAX_MODELS * _SLOT.size


class UpstreamQuota:
    """The limits of one upstream server."""

    def __init__(self, name: str, times: QuotaTimes | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            name: The server's name in the settings.
            times: Where the times are kept; None: in the memory of this process.
            now_s: Monotonic clock, in seconds.
        """
        self._name, self._times, self._now_s = name, times or QuotaTimes(), now_s
        self._tried_s: dict[str, float] = {}
        """When this process last sent a request for a model that has reached its limit."""
        self._messages: dict[str, str] = {}
        """The error about each of them."""

    def limited_for_s(self, model: str) -> float:
        """Returns the seconds until the model gets requests again; 0: now."""
        return max(0.0, self._times.get(model) - self._now_s())

    def ensure_available(self, model: str) -> None:
        """Checks that a request for the model may be sent.

        Raises:
            UpstreamError: The limit has been reached; `retry_after_s` has the time until it is reset.
        """
        if not self._times.get(model):  # the most frequent case
            return
        left_s = self.limited_for_s(model)
        if not left_s:
            return
        now_s = self._now_s()
        if now_s - self._tried_s.setdefault(model, now_s) >= TRIAL_S:
            self._tried_s[model] = now_s
            return
        at = datetime.fromtimestamp(time.time() + left_s, UTC)
        reason = self._messages.get(model, "a limit has been reached")
        raise UpstreamError(
            f"{reason} ({self._name} gets no requests for {quote(model)} until {at:%Y-%m-%d %H:%M} UTC, "
            f"in {_duration(left_s)}; use another model, or wait)",
            status=429,
            retry_after_s=left_s,
        )

    def limited_models(self) -> Mapping[str, int]:
        """Returns the models that this process knows to have reached a limit, with the seconds until it is reset."""
        known = {model: math.ceil(self.limited_for_s(model)) for model in self._tried_s}
        return {model: left_s for model, left_s in known.items() if left_s}

    def observe(self, model: str, error: BaseException) -> None:
        """Remembers when the limit is reset, if the error tells that."""
        if not model or not isinstance(error, UpstreamError) or error.status not in _STATUSES:
            return
        if (delay_s := error.retry_after_s or 0.0) >= MIN_BLOCK_S:
            self._times.set(model, self._now_s() + min(delay_s, MAX_BLOCK_S))
            self._tried_s[model] = self._now_s()
            self._messages[model] = error.message
            if len(self._tried_s) > _MAX_MODELS:
                self._forget(next(iter(self._tried_s)))

    def clear(self, model: str) -> None:
        """The model has answered."""
        if self._times.get(model):
            self._times.set(model, 0.0)
            self._forget(model)

    def _forget(self, model: str) -> None:
        self._tried_s.pop(model, None)
        self._messages.pop(model, None)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
