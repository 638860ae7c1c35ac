"""The record of a finished exchange (`records`), from what was observed of it."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from dragoman import __version__
from dragoman.core.errors import AuthError, ForbiddenError
from dragoman.records.record import CallKind, ExchangeRecord, Series
from dragoman.records.writer import RecordWriter
from dragoman.server.base_exchange import Route
from dragoman.server.observe.access_log import FAILED_LIMIT, NAME_LIMIT_CHARS, AccessRecord

if TYPE_CHECKING:
    from dragoman.server.observe.process_metrics import ProcessFamilies
    from dragoman.server.observe.shared_metrics import SharedFamilies

IsAlias: TypeAlias = Callable[[str], bool]
WARNINGS_LIMIT = 20
"""Maximum number of warnings in a record."""
_ERROR_CHARS = 300


class DroppedRecords:
    """The metric of records that could not be written."""

    def __init__(self, make: "ProcessFamilies | SharedFamilies", writer: RecordWriter) -> None:
        from prometheus_client import Counter

        name, what = "dragoman_records_dropped_total", "Records of exchanges that could not be written."
        family = make.counter(name, what, ())
        self._counter = family if isinstance(family, Counter) else family.labels()
        self._writer, self._counted = writer, 0

    def update(self) -> None:
        """Counts those that were dropped since the last call."""
        dropped = self._writer.dropped
        self._counter.inc(dropped - self._counted)
        self._counted = dropped


def is_recorded(route: Route, access: AccessRecord) -> bool:
    """Returns whether an exchange is recorded: not if it only counts tokens or loads a model, or was refused.

    Requests without a valid key would otherwise fill the database.
    """
    return route.counting is None and route.loads is None and not isinstance(access.cause, AuthError | ForbiddenError)


def exchange_record(route: Route, access: AccessRecord, is_alias: IsAlias, captured: str | None) -> ExchangeRecord:
    """Returns the record.

    Args:
        route: what is served at the path of the request.
        access: what was observed.
        is_alias: returns whether a model's name is an alias of the settings.
        captured: the name of the folder of the capture; None: there is none.
    """
    request, attempts, client, usage = access.request, access.attempts, access.client, access.usage
    model = "" if request is None else request.model[:NAME_LIMIT_CHARS]
    error, _, message = access.error.partition(":")
    series = Series(
        __version__,
        route.label,
        client.key,
        client.agent,
        client.role,
        model,
        model if is_alias(model) else "",
        attempts.upstream,
        attempts.model[:NAME_LIMIT_CHARS],
        attempts.tool_mode,
        attempts.format,
        request is not None and request.stream,
        access.is_passthrough,
        access.finish,
        access.status,
        error,
    )
    is_answered = access.first_s is not None
    failed = attempts.failed
    return ExchangeRecord(
        time.time(),
        access.turn_id,
        series,
        [(CallKind(tool, kind, ",".join(repairs)), n) for (tool, kind, repairs), n in access.tally.kinds.items()],
        client.session or None,
        attempts.count,
        [(name, reason[:_ERROR_CHARS]) for name, reason in failed[:FAILED_LIMIT]] if failed else None,
        usage.input_tokens if is_answered else None,
        usage.cached_input_tokens if is_answered else None,
        usage.output_tokens if is_answered else None,
        usage.reasoning_tokens if is_answered else None,
        0 if request is None else len(request.tools),
        message.strip()[:_ERROR_CHARS] or None,
        access.labels[:WARNINGS_LIMIT] or None,
        _ms(access.first_s),
        round(access.seconds * 1000),
        _ms(attempts.queue_s),
        _ms(attempts.prompt_s),
        usage.cost_usd,
        captured,
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
