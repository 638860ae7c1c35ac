"""Writes records to the database, in a thread, so that no request waits for it.

    writer = RecordWriter(config)
    writer.add(record)      puts it into a queue; the first one starts the thread
    writer.close()          writes what the queue contains, within `CLOSE_TIMEOUT_S`

If the database cannot be written, records wait in the queue, and are dropped once it is full. One line of the log
reports that, and one that records are written again.
"""

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from dragoman.records.config import RecordsConfig
from dragoman.records.database import Location, describe, locate, open_for_writing
from dragoman.records.record import ExchangeRecord

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dragoman.records.retention import Retention

log = logging.getLogger("dragoman.records")

QUEUE_LIMIT: Final = 10_000
"""Records that wait, of about 1 KB each."""
BATCH_LIMIT: Final = 1000
BATCH_DELAY_S: Final = 1.0
"""Time for which records are collected before they are written."""
CLOSE_TIMEOUT_S: Final = 5.0
RETENTION_INTERVAL_S: Final = 600.0
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0


class RecordWriter:
    """The queue of records and the thread that writes them; `add` is called by one thread."""

    def __init__(
        self,
        config: RecordsConfig,
        now_s: Callable[[], float] = time.time,
        batch_delay_s: float = BATCH_DELAY_S,
    ) -> None:
        """
        Args:
            config: the database, which is opened with the first record, and how long records are kept.
            now_s: returns the seconds since 1970.
            batch_delay_s: time for which records are collected.

        Raises:
            ConfigError: the URL is not that of a supported database.
        """
        self.dropped = 0
        """Records that could not be written."""
        self._location = locate(config.url) if config.url else None
        self._batch_delay_s = batch_delay_s
        self._queue: deque[ExchangeRecord] = deque()
        self._filled = threading.Event()
        """There is work, or the end is near."""
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Protects `dropped`, which two threads count."""
        self._overflowed = False
        self._dropped_before: int | None = None
        """`dropped` when writing began to fail; None: it does not fail."""
        self._database = _Database(config, now_s)

    def add(self, record: ExchangeRecord) -> None:
        """Puts a record into the queue, or drops it if the queue is full."""
        if len(self._queue) >= QUEUE_LIMIT:
            self._drop(1)
            if not self._overflowed:
                self._overflowed = True
                log.warning("records are dropped: %d wait to be written to %s", QUEUE_LIMIT, self.location.display_name)
            return
        self._queue.append(record)
        if not self._filled.is_set():
            self._filled.set()
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="records", daemon=True)
                self._thread.start()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Writes the records of the queue and ends the thread; what takes longer is dropped."""
        self._closing.set()
        self._filled.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._queue:
                log.warning("%d records were not written to %s", len(self._queue), self.location.display_name)
                self._drop(len(self._queue))

    @property
    def location(self) -> Location:
        """Where the records are written."""
        if self._location is None:
            self._location = locate("")  # imports a package, so not before the first record
        return self._location

    def _drop(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                if self._filled.wait(self._database.seconds_to_retention()):
                    self._closing.wait(self._batch_delay_s)
                    self._filled.clear()
                    self._write_all()
                if self._database.seconds_to_retention() == 0:
                    self._database.delete_some()
            self._write_all()
        except Exception:
            log.exception("bug: no records are written any more")
        finally:
            self._database.close()

    def _write_all(self) -> None:
        """Writes the queue; returns early if the gateway ends and the database cannot be written."""
        delay_s = _FIRST_RETRY_S
        while self._queue:
            batch = list(islice(self._queue, BATCH_LIMIT))
            problem = self._database.write(batch)
            if problem is None:
                self._remove(batch)
                self._report_recovery()
                delay_s = _FIRST_RETRY_S
                continue
            self._report(problem)
            if problem.is_permanent:
                self._remove(batch)
                self._drop(len(batch))
            elif self._closing.is_set():
                return
            else:
                self._closing.wait(delay_s)
                delay_s = min(delay_s * 2, _MAX_RETRY_S)

    def _remove(self, batch: Sequence[ExchangeRecord]) -> None:
        for _ in batch:
            self._queue.popleft()

    def _report(self, problem: "_Problem") -> None:
        """Logs the first of several problems."""
        if self._dropped_before is not None:
            return
        self._dropped_before = self.dropped
        what = "they are dropped" if problem.is_permanent else f"up to {QUEUE_LIMIT} wait, more are dropped"
        log.warning(
            "records cannot be written to %s: %s; %s, requests are not affected",
            self.location.display_name,
            problem.reason,
            what,
        )

    def _report_recovery(self) -> None:
        if self._dropped_before is None and not self._overflowed:
            return
        count = self.dropped - (self._dropped_before or 0)
        self._dropped_before, self._overflowed = None, False
        log.warning("records are written to %s again; %d were dropped", self.location.display_name, count)


class _Problem:
    """Why a batch was not written."""

    def __init__(self, reason: str, *, is_permanent: bool) -> None:
        self.reason = reason
        self.is_permanent = is_permanent
        """The same batch would fail again."""


class _Database:
    """The database, as the thread of the writer uses it."""

    def __init__(self, config: RecordsConfig, now_s: Callable[[], float]) -> None:
        self._config, self._now_s = config, now_s
        self._engine: Engine | None = None
        self._retention: Retention | None = None
        self._retention_due_s = 0.0
        self._number = 0
        self._process_bits = 0

    def write(self, records: Sequence[ExchangeRecord]) -> _Problem | None:
        """Writes the records in one transaction, and returns why that failed, if it did."""
        from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

        from dragoman.core.errors import DragomanError
        from dragoman.records.migrate import SchemaError

        try:
            try:
                self._write(records)
            except IntegrityError:  # another process has used the same number in the same microsecond
                self._process_bits = 0
                self._write(records)
        except (SchemaError, DragomanError) as error:
            self.close()
            return _Problem(str(error), is_permanent=True)
        except (OSError, OperationalError, InterfaceError) as error:
            self.close()
            return _Problem(describe(error), is_permanent=False)
        except (SQLAlchemyError, ValueError, TypeError, OverflowError) as error:
            self.close()
            is_disconnected = isinstance(error, DBAPIError) and error.connection_invalidated
            return _Problem(describe(error), is_permanent=not is_disconnected)
        return None

    def seconds_to_retention(self) -> float:
        """Returns the seconds until something is deleted."""
        return max(0.0, self._retention_due_s - time.monotonic()) if self._retention else RETENTION_INTERVAL_S

    def delete_some(self) -> None:
        """Deletes a part of what is too old or too much; errors are those that writing reports too."""
        from sqlalchemy.exc import SQLAlchemyError

        more = False
        try:
            more = self._retention is not None and self._retention.step()
        except SQLAlchemyError as error:
            log.debug("old records were not deleted: %s", describe(error))
        self._retention_due_s = time.monotonic() + (0.0 if more else RETENTION_INTERVAL_S)

    def close(self) -> None:
        """Closes the connections; the next batch opens new ones."""
        if self._engine is not None:
            self._engine.dispose()
        self._engine = self._retention = None

    def _write(self, records: Sequence[ExchangeRecord]) -> None:
        from dragoman.records.batch import Batch
        from dragoman.records.retention import Retention

        engine = self._engine
        if engine is None:
            engine = self._engine = open_for_writing(locate(self._config.url))
            self._retention = Retention(engine, self._config.keep_days, self._config.max_bytes, self._now_s)
            self._retention_due_s = time.monotonic()
        batch = Batch()
        for record in records:
            batch.add(record, self._next_number(record.ended_s))
        with engine.begin() as connection:
            batch.write(connection)

    def _next_number(self, ended_s: float) -> int:
        """Returns a number that no other exchange has, also of other processes."""
        from dragoman.records.schema import NUMBERS_PER_S, first_number

        if not self._process_bits:
            self._process_bits = random.Random(os.urandom(8)).randrange(1, 1024)
        number = first_number(ended_s) + self._process_bits
        if 0 <= self._number - number < NUMBERS_PER_S:  # within a second; else the clock was changed
            number = (self._number | 1023) + 1 + self._process_bits
        self._number = number
        return number
