"""Reports for pages: read one after the other, few at a time, and not again within a few seconds."""

import asyncio
import threading
from typing import Any

import pytest

from dragoman.config import Config
from dragoman.console.reports import over_time
from dragoman.console.reports.over_time import MAX_WAITING, ReportQuestion, ReportReader
from dragoman.core.errors import BackendUnavailableError


class Clock:
    """A clock that the test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[ReportQuestion]:
    """The questions for which the database was read."""
    questions: list[ReportQuestion] = []

    def read_report(config: Config, question: ReportQuestion, now_s: float) -> Any:
        questions.append(question)
        return len(questions)

    monkeypatch.setattr(over_time, "_read_report", read_report)
    return questions


async def test_a_report_is_read_again_after_some_seconds(read: list[ReportQuestion]) -> None:
    clock = Clock()
    reader, question = ReportReader(Config(), clock), ReportQuestion("model", 7)
    assert await asyncio.gather(*(reader.read(question) for _ in range(3))) == [1, 1, 1]
    assert await reader.read(ReportQuestion("model", 8)) == 2
    clock.now_s += 6
    assert await reader.read(question) == 3
    assert len(read) == 3


async def test_few_reports_wait_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    monkeypatch.setattr(over_time, "_read_report", lambda config, question, now_s: go.wait(30))
    reader = ReportReader(Config())
    reads = [asyncio.create_task(reader.read(ReportQuestion("model", days + 1))) for days in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    with pytest.raises(BackendUnavailableError, match="expected a few reports at the same time"):
        await reader.read(ReportQuestion("key", 1))
    go.set()
    assert len(await asyncio.gather(*reads)) == MAX_WAITING + 1
    assert await reader.read(ReportQuestion("key", 1))
