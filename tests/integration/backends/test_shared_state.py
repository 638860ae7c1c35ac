"""What several processes of a gateway share about upstream servers, while some are killed or stopped."""

import asyncio
import signal
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman.backends.http.circuit_breaker import COOL_DOWN_S, FAILURE_THRESHOLD
from dragoman.backends.shared_state import SharedState
from support.processes import Lines, python_process
from support.scripted_backend import eventually

# Each line of input is a command; what it prints is the answer, in the order in which it happens.
SLOTS = textwrap.dedent("""
    import asyncio, fcntl, os, sys
    from pathlib import Path
    from dragoman.backends.shared_state import SharedState
    from dragoman.core.errors import QueueFullError

    async def main(folder, slots, queue):
        limiter = SharedState(Path(folder)).limiter("far", int(slots), int(queue))
        release = asyncio.Event()
        one_at_a_time = os.open(f"{folder}/inside", os.O_RDWR | os.O_CREAT)

        async def hold():
            try:
                async with limiter.acquire():
                    print("inside", flush=True)
                    await release.wait()
                    release.clear()
                print("outside", flush=True)
            except QueueFullError:
                print("full", flush=True)

        async def wait_in_queue():
            while not limiter.waiting:
                await asyncio.sleep(0.001)
            print("waiting", flush=True)

        async def count():
            print(limiter.waiting, flush=True)

        async def work():
            for _ in range(20):
                async with limiter.acquire():
                    fcntl.flock(one_at_a_time, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error if two are inside
                    await asyncio.sleep(0)
                    fcntl.flock(one_at_a_time, fcntl.LOCK_UN)
                print("worked", flush=True)

        commands = {"hold": hold, "wait": wait_in_queue, "count": count, "work": work}
        tasks = []
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() == "release":
                release.set()
            else:
                tasks.append(asyncio.ensure_future(commands[line.strip()]()))
        await asyncio.gather(*tasks)

    asyncio.run(main(*sys.argv[1:]))
""")

BREAKER = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from dragoman.backends.http.circuit_breaker import CircuitBreaker
    from dragoman.backends.shared_breaker import SharedBreakerState
    from dragoman.core.errors import BackendUnavailableError

    path, later_s = sys.argv[1:]
    breaker = CircuitBreaker("far", lambda: time.monotonic() + float(later_s), SharedBreakerState(Path(path)))
    for line in sys.stdin:
        if line == "fail\\n":
            try:
                with breaker.guard():
                    raise BackendUnavailableError("gone")
            except BackendUnavailableError:
                pass
        if line == "try\\n":
            with breaker.guard() as succeeded:
                print(breaker.state, flush=True)
                if sys.stdin.readline() == "succeed\\n":
                    succeeded()
        print(breaker.state, flush=True)
""")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def holders(stack: ExitStack, folder: Path, count: int, queue: int = 16) -> list[Lines]:
    return [stack.enter_context(python_process(SLOTS, folder, 1, queue)) for _ in range(count)]


def waits(process: Lines) -> None:
    process.write("hold")
    assert process.ask("wait") == "waiting"


def joins_queue(process: Lines) -> bool:
    process.write("hold")
    answer = process.ask("count")
    if answer == "full":
        assert process.read() == "0"
    return answer == "1"


def test_slot_of_killed_process_goes_to_the_longest_waiting_one(stack: ExitStack, tmp_path: Path) -> None:
    one, two, three, four = holders(stack, tmp_path, 4)
    assert one.ask("hold") == "inside"
    waits(two)
    waits(three)
    waits(four)
    two.kill()  # in the queue
    one.kill()  # in the slot
    assert three.read() == "inside"
    assert three.ask("release") == "outside"
    assert four.read() == "inside"


def test_stopped_process_in_queue_does_not_block_others(stack: ExitStack, tmp_path: Path) -> None:
    one, two, three = holders(stack, tmp_path, 3)
    assert one.ask("hold") == "inside"
    waits(two)
    waits(three)
    two.signal(signal.SIGSTOP)
    assert one.ask("release") == "outside"
    assert three.read() == "inside"
    assert three.ask("release") == "outside"
    two.signal(signal.SIGCONT)
    assert two.read() == "inside"


def test_full_queue_of_all_processes_rejects_until_one_is_killed(stack: ExitStack, tmp_path: Path) -> None:
    one, two, three = holders(stack, tmp_path, 3, queue=1)
    assert one.ask("hold") == "inside"
    waits(two)
    assert three.ask("hold") == "full"
    two.kill()
    while not joins_queue(three):  # its death is noticed a moment later
        pass
    assert one.ask("release") == "outside"
    assert three.read() == "inside"


def test_processes_that_compete_for_a_slot_never_hold_it_together(stack: ExitStack, tmp_path: Path) -> None:
    """Also if one of them is killed: each of the others ends its work."""
    *workers, killed = holders(stack, tmp_path, 4)
    for process in (*workers, killed):
        process.write("work")
    assert killed.read() == "worked"
    killed.kill()
    for process in workers:
        assert [process.read() for _ in range(20)] == ["worked"] * 20


def test_circuit_breaker_opens_for_all_processes(stack: ExitStack, tmp_path: Path) -> None:
    one, two, three = (stack.enter_context(python_process(BREAKER, tmp_path / "far", 0)) for _ in range(3))
    states = [process.ask("fail") for process in (one, two, one, two, one)[:FAILURE_THRESHOLD]]
    assert states == ["closed"] * (FAILURE_THRESHOLD - 1) + ["open"]
    assert three.ask("state") == "open"


def test_trial_ends_with_its_process(stack: ExitStack, tmp_path: Path) -> None:
    later_s = COOL_DOWN_S + 1
    one, two, three = (stack.enter_context(python_process(BREAKER, tmp_path / "far", s)) for s in (0, later_s, later_s))
    for _ in range(FAILURE_THRESHOLD):
        one.write("fail")
        one.read()
    assert two.ask("try") == "trying"
    assert three.ask("state") == "trying"
    two.kill()
    assert three.ask("state") == "open"
    assert three.ask("try") == "trying"
    assert three.ask("succeed") == "closed"
    assert one.ask("state") == "closed"


PROBE = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from dragoman.backends.shared_state import SharedState

    async def main():
        async with SharedState(Path(sys.argv[1])).probe_lock("model"):
            print("inside", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(main())
""")


async def test_probe_lock_of_killed_process_is_free(stack: ExitStack, tmp_path: Path) -> None:
    prober = stack.enter_context(python_process(PROBE, tmp_path))
    assert prober.read() == "inside"
    entered = asyncio.Event()

    async def probe() -> None:
        async with SharedState(tmp_path).probe_lock("model"):
            entered.set()

    async with SharedState(tmp_path).probe_lock("another model"):
        waiting = asyncio.ensure_future(probe())
        cancelled = asyncio.ensure_future(probe())
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert not entered.is_set()
    prober.kill()
    await eventually(entered.is_set)
    await waiting
