"""The last failed attempts at each upstream: of the records, and of the last seconds, which are not recorded yet."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from dragoman.config import Config
from dragoman.console.traffic.history import records_connection
from dragoman.console.upstreams.views import FailureView
from dragoman.records.record import ExchangeRecord

MAX_FAILURES: Final = 20
"""Maximum number for one upstream."""
PERIOD_S: Final = 86_400.0
"""Age of the oldest failure."""
_MAX_EXCHANGES: Final = 500


def recent_failures(config: Config, recent: Iterable[ExchangeRecord], now_s: float) -> Mapping[str, list[FailureView]]:
    """Returns the failures of the last day by upstream, the newest first. Reads the database of the records.

    Args:
        config: the settings.
        recent: exchanges that have just ended.
        now_s: seconds since 1970.

    Raises:
        BackendUnavailableError: the database cannot be read.
    """
    latest = list(_of_records(recent))
    known = {failure.id for _, failure in latest}
    earlier = [each for each in _recorded(config, now_s - PERIOD_S) if each[1].id not in known]
    by_upstream: dict[str, list[FailureView]] = {}
    for upstream, failure in sorted(chain(latest, earlier), key=lambda each: -each[1].ended_s):
        listed = by_upstream.setdefault(upstream, [])
        if len(listed) < MAX_FAILURES:
            listed.append(failure)
    return by_upstream


def _of_records(recent: Iterable[ExchangeRecord]) -> Iterator[tuple[str, FailureView]]:
    for record in recent:
        labels = record.series
        for upstream, reason in record.failed_attempts or ():
            model = labels.upstream_model if upstream == labels.upstream else labels.model
            yield (
                upstream,
                FailureView(
                    ended_s=record.ended_s,
                    id=f"req_{record.id}",
                    model=model,
                    reason=reason,
                    answered=not labels.error,
                ),
            )


def _recorded(config: Config, since_s: float) -> list[tuple[str, FailureView]]:
    from dragoman.records.reports.failed_attempts import read_failed_attempts

    with records_connection(config) as connection:
        attempts = [] if connection is None else read_failed_attempts(connection, since_s, _MAX_EXCHANGES)
    return [
        (
            each.upstream,
            FailureView(
                ended_s=each.ended_s, id=each.id, model=each.model, reason=each.reason, answered=each.is_answered
            ),
        )
        for each in attempts
    ]
