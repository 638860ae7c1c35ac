"""What is done with a finished exchange: log, metrics, capture, span, record, hooks."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from dragoman.core import hooks
from dragoman.core.hooks import OnError
from dragoman.records.record import ExchangeRecord
from dragoman.records.writer import RecordWriter
from dragoman.server.base_exchange import Route
from dragoman.server.capture.recorder import CaptureRecorder
from dragoman.server.capture.store import CaptureStore
from dragoman.server.keys.admission import settle
from dragoman.server.observe.access_log import AccessRecord
from dragoman.server.observe.exchange_record import exchange_record, is_recorded
from dragoman.server.observe.live_feed import LiveFeed
from dragoman.server.observe.metrics import Metrics
from dragoman.server.observe.server_span import ServerSpan
from dragoman.server.reload.snapshot import Snapshot

POLLED_PATHS: Final = ("/health", "/ready", "/metrics")
"""Paths that machines poll; a request is logged only if it is refused."""

log = logging.getLogger("dragoman.server")


class FinishedExchanges:
    """Where finished exchanges are logged, counted and stored."""

    def __init__(self, metrics: Metrics | None, records: RecordWriter | None, on_error: Iterable[OnError]) -> None:
        self._metrics, self._records, self._on_error = metrics, records, tuple(on_error)
        self.feed: LiveFeed | None = None
        """Where pages watch exchanges; None: there are no such pages."""

    def add(
        self,
        snapshot: Snapshot,
        route: Route | None,
        record: AccessRecord,
        capture: CaptureRecorder | None,
        span: ServerSpan | None,
    ) -> None:
        """Logs, counts and stores a finished exchange; if one of these fails, the others still run.

        Args:
            snapshot: the configuration of the exchange.
            route: what was requested by POST; None: something else.
            record: what was observed.
            capture: what is written to disk; None: nothing.
            span: the span of the exchange; None: it is not traced.
        """
        finished, captures = _FinishedExchange(snapshot, record), snapshot.captures
        steps: list[tuple[str, Callable[[], object]]] = [("closed", record.close)]
        steps += [("settled", partial(settle, record))] if record.admission is not None else []
        if record.error or record.path not in POLLED_PATHS:
            steps.append(("logged", record.log))
        if self._metrics and route:
            steps.append(("counted", partial(self._metrics.finish, route, record, snapshot.gateway)))
        if captures and capture:
            steps.append(("kept", partial(finished.keep, captures, capture)))
        if span is not None:
            steps.append(("traced", span.finish))
        if self._records and route:
            steps.append(("recorded", partial(finished.store, self._records, route)))
        if self.feed is not None and route:
            steps.append(("shown", partial(finished.show, self.feed, route)))
        for name, step in steps:
            try:
                step()
            except Exception:
                log.exception("bug: %s could not be %s", record.id, name)
        if record.cause is not None:
            hooks.call_hooks((*self._on_error, *snapshot.gateway.on_error), record.cause, record.id)


class _FinishedExchange:
    """Makes the record of a finished exchange once, for all that need it."""

    def __init__(self, snapshot: Snapshot, access: AccessRecord) -> None:
        self._snapshot, self._access = snapshot, access
        self._captured: str | None = None
        """Name of the capture; None: it was not captured."""
        self._record: ExchangeRecord | None = None

    def keep(self, captures: CaptureStore, capture: CaptureRecorder) -> None:
        self._captured = captures.finish(capture, self._access)

    def store(self, records: RecordWriter, route: Route) -> None:
        if is_recorded(route, self._access):
            records.add(self._make(route))

    def show(self, feed: LiveFeed, route: Route) -> None:
        feed.end(self._access.id, self._record is not None, partial(self._make, route))

    def _make(self, route: Route) -> ExchangeRecord:
        if self._record is None:
            self._record = exchange_record(route, self._access, self._snapshot.gateway.is_alias, self._captured)
        return self._record
