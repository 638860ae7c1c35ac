"""Work on captures: few at the same time, and whatever fails is an error that the page can show."""

import asyncio
import subprocess
import sys
import threading

import pytest

from dragoman.console.exchange import capture_work
from dragoman.console.exchange.capture_work import LARGE_BYTES, MAX_ORDERS, CaptureWork, WorkOrder, WorkResult
from dragoman.core.errors import BackendUnavailableError, ConfigError, RequestError

SMALL = WorkOrder(name="20261127-req_1", files={"body": b"{}"}, operation="view")


def nothing() -> tuple[list[str], capture_work.ReadFile]:
    return [], lambda id, file: None


async def test_unexpected_exception_is_an_error_without_content(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise TypeError("text of the prompt")

    monkeypatch.setattr(capture_work, "build_lanes", fails)
    with pytest.raises(RequestError, match="expected a capture that can be read, got TypeError"):
        await CaptureWork().run(SMALL, nothing)
    assert "cannot carry out view of the capture 20261127-req_1: TypeError at " in caplog.text
    assert "text of the prompt" not in caplog.text


async def test_orders_at_the_same_time_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def waits(*_: object) -> WorkResult:
        go.wait(30)
        return WorkResult()

    monkeypatch.setattr(capture_work, "_carry_out_with", waits)
    work = CaptureWork()
    orders = [asyncio.create_task(work.run(SMALL, nothing)) for _ in range(MAX_ORDERS)]
    await asyncio.sleep(0)
    with pytest.raises(BackendUnavailableError, match="try again later") as caught:
        await work.run(SMALL, nothing)
    assert caught.value.retry_after_s
    go.set()
    assert len(await asyncio.gather(*orders)) == MAX_ORDERS
    assert await work.run(SMALL, nothing) == WorkResult()


@pytest.mark.parametrize("size", [1, LARGE_BYTES])
def test_process_that_has_ended_is_sent_nothing(size: int) -> None:
    """The pipe is broken, also when it is closed with data that is left."""
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.wait(30)
    order = WorkOrder(name="20261127-req_2", files={"body": b"x" * size}, operation="view")
    assert capture_work._talk(child, order) == b""


async def test_process_that_ends_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_work, "WORKER", "dragoman.no_such_module")
    monkeypatch.setattr(capture_work, "LARGE_BYTES", 0)
    with pytest.raises(ConfigError, match="the process that reads it ended"):
        await CaptureWork().run(SMALL, nothing)
