"""Counts of the last minute, and running requests; different objects act as different processes."""

from pathlib import Path

import pytest

from dragoman import shared_files
from dragoman.usage_limits.concurrency import LocalRequests, MappedRequests, RunningRequests
from dragoman.usage_limits.mapped_storage import MappedStorage
from dragoman.usage_limits.windows import RateWindows, WindowState

START_S = 1_800_000_000.0  # a full minute


class Clock:
    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


async def test_processes_share_a_window(tmp_path: Path) -> None:
    clock = Clock()
    one, two = (RateWindows(MappedStorage(tmp_path / "windows", clock)) for _ in range(2))
    assert [await windows.take("alice", 3, 1) for windows in (one, two, one, two)] == [True, True, True, False]
    assert await two.take("bob", 3, 3)
    state = await two.state("alice", 3)
    assert (state.remaining, state.reset_s) == (0, 120.0)


async def test_window_slides(tmp_path: Path) -> None:
    clock = Clock()
    windows = RateWindows(MappedStorage(tmp_path / "windows", clock))
    assert await windows.take("alice", 60, 60)
    wait_s = (await windows.state("alice", 60)).wait_s(30)
    assert wait_s == 90.0
    clock.now_s += wait_s - 2
    assert not await windows.take("alice", 60, 30)
    clock.now_s += 2
    assert await windows.take("alice", 60, 30)
    clock.now_s += 120
    assert (await windows.state("alice", 60)).remaining == 60


async def test_what_was_not_used_is_given_back(tmp_path: Path) -> None:
    windows = RateWindows(MappedStorage(tmp_path / "windows", Clock()))
    assert await windows.take("alice", 100, 90)
    await windows.add("alice", -50)
    assert (await windows.state("alice", 100)).remaining == 60
    await windows.add("alice", 500)
    assert (await windows.state("alice", 100)).remaining == 0


@pytest.mark.parametrize("passed_s", [0, 20, 59, 61, 90, 119])
@pytest.mark.parametrize("amount", [1, 10, 99, 100])
async def test_wait_is_long_enough_and_not_too_long(tmp_path: Path, passed_s: int, amount: int) -> None:
    clock = Clock()
    windows = RateWindows(MappedStorage(tmp_path / "windows", clock))
    for used in (70, 30):
        assert await windows.take("alice", 100, used)
    clock.now_s += passed_s
    wait_s = (await windows.state("alice", 100)).wait_s(amount)
    if wait_s > 2:
        clock.now_s += wait_s - 2
        assert not await windows.take("alice", 100, amount)
        clock.now_s -= wait_s - 2
    clock.now_s += wait_s + 0.01
    assert await windows.take("alice", 100, amount)


def test_unused_window_has_nothing_to_wait_for() -> None:
    state = WindowState(10)
    assert (state.remaining, state.reset_s, state.wait_s(10)) == (10, 0.0, 0.0)


async def test_storage_of_the_package_and_the_mapped_one_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from limits.aio.storage import MemoryStorage

    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    both = [RateWindows(MappedStorage(tmp_path / "windows", clock)), RateWindows(MemoryStorage())]
    for step in range(200):
        clock.now_s += step % 7
        taken = [await windows.take("a", 50, step % 11) for windows in both]
        assert taken[0] == taken[1], step


class BrokenStorage:
    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        raise ConnectionError("refused")

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        raise ConnectionError("refused")


async def test_memory_is_used_while_the_server_fails(caplog: pytest.LogCaptureFixture) -> None:
    windows = RateWindows(BrokenStorage(), (OSError,))
    assert [await windows.take("alice", 2, 1) for _ in range(3)] == [True, True, False]
    assert len(caplog.records) == 1
    assert "each process counts by itself for 10 s" in caplog.text


@pytest.mark.parametrize("shared", [False, True])
async def test_running_requests(tmp_path: Path, shared: bool) -> None:
    running: RunningRequests = MappedRequests(tmp_path / "running") if shared else LocalRequests()
    assert [await running.take("alice", 2) for _ in range(3)] == [True, True, False]
    running.release("alice")
    assert await running.take("alice", 2)
    assert (await running.count("alice"), await running.count("bob")) == (2, 0)
    await running.close()


async def test_running_requests_of_several_processes(tmp_path: Path) -> None:
    one, two = (MappedRequests(tmp_path / "running") for _ in range(2))
    assert await one.take("alice", 2)
    assert await two.take("alice", 2)
    assert not await one.take("alice", 2)
    await two.close()  # as the kernel releases the lock when a process is killed
    assert await one.take("alice", 2)
    three = MappedRequests(tmp_path / "running")
    assert await three.count("alice") == 2
    await one.close()
    assert await three.count("alice") == 0
    await three.close()


def test_window_names_are_no_paths(tmp_path: Path) -> None:
    assert "/" not in shared_files.file_name("../../alice")
