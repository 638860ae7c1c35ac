"""Reads reports for pages: one after the other, in a thread, and not again within a few seconds."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from dragoman.config import Config
from dragoman.console.reports.views import ReportsView
from dragoman.core.errors import BackendUnavailableError

MAX_WAITING: Final = 4
"""Reports that wait for another one; they are read one after the other."""
_FRESH_S: Final = 5.0
"""Time for which a report is returned again, as several pages ask for the same one."""
_REMEMBERED: Final = 8


class ReportQuestion(NamedTuple):
    """Which report is asked for."""

    by: str
    days: int
    only: tuple[tuple[str, str], ...] = ()
    """Label and pattern of each filter."""


class ReportReader:
    """Reads reports in one thread, one after the other, so that requests do not wait for the database."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.time) -> None:
        """Args:
        config: The settings.
        clock: Returns the seconds since 1970.
        """
        self._config, self._clock = config, clock
        self._thread: ThreadPoolExecutor | None = None
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._recent: OrderedDict[ReportQuestion, tuple[float, ReportsView]] = OrderedDict()

    async def read(self, question: ReportQuestion) -> ReportsView:
        """Returns a report.

        Args:
            question: Which one.

        Raises:
            BackendUnavailableError: The records cannot be read, or too many reports are being read.
        """
        if self._waiting > MAX_WAITING:
            raise BackendUnavailableError("expected a few reports at the same time, got more; try again later")
        self._waiting += 1
        try:
            async with self._lock:
                read_s, view = self._recent.get(question, (0.0, None))
                now_s = self._clock()
                if view is None or now_s - read_s > _FRESH_S:
                    view = await self._read(question, now_s)
                    self._recent[question] = now_s, view
                    while len(self._recent) > _REMEMBERED:
                        self._recent.popitem(last=False)
                return view
        finally:
            self._waiting -= 1

    async def _read(self, question: ReportQuestion, now_s: float) -> ReportsView:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "dragoman-reports")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, _read_report, self._config, question, now_s)


def _read_report(config: Config, question: ReportQuestion, now_s: float) -> ReportsView:
    from dragoman.console.reports.report_view import read_report  # imports SQLAlchemy, which takes 0.3 s

    return read_report(config, question.by, question.days, dict(question.only), now_s)
