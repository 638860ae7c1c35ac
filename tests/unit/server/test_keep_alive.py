"""Pings of a stream: after each silence, and never within a write."""

import asyncio

import pytest

from dragoman.server.keep_alive import KeepAlive

DEADLINE_S = 30.0
LONG_S = 1000.0


class Sent:
    """Counts the pings; `paused` makes one wait, as a client that accepts nothing does."""

    def __init__(self) -> None:
        self.pings = 0
        self.begun = asyncio.Event()
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def ping(self) -> None:
        self.begun.set()
        await self.accepts.wait()
        self.pings += 1

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.pings < count:
                await asyncio.sleep(0.001)


async def test_pings_repeat_while_the_stream_is_silent() -> None:
    sent = Sent()
    async with KeepAlive(0.001, 0.001, sent.ping):
        await sent.wait_for(3)
    stopped_at = sent.pings
    await asyncio.sleep(0.02)
    assert sent.pings == stopped_at


async def test_first_delay_and_interval_differ() -> None:
    sent = Sent()
    async with KeepAlive(LONG_S, 0.001, sent.ping) as pings:
        assert pings.pause() is None
        pings.resume()  # from here on the interval counts
        await sent.wait_for(1)
    async with KeepAlive(0.001, LONG_S, sent.ping):
        await sent.wait_for(1)


async def test_no_ping_is_sent_within_a_write() -> None:
    sent = Sent()
    async with KeepAlive(0.001, 0.001, sent.ping) as pings:
        assert pings.pause() is None
        await asyncio.sleep(0.02)
        assert sent.pings == 0
        pings.resume()
        await sent.wait_for(1)


async def test_write_waits_for_the_ping_that_is_being_sent() -> None:
    sent = Sent()
    sent.accepts.clear()
    async with KeepAlive(0.001, LONG_S, sent.ping) as pings:
        await sent.begun.wait()
        ping = pings.pause()
        assert ping is not None
        sent.accepts.set()
        await ping
        assert pings.pause() is None
        assert sent.pings == 1


async def test_leaving_cancels_the_ping_that_is_being_sent() -> None:
    sent = Sent()
    sent.accepts.clear()
    async with KeepAlive(0.001, LONG_S, sent.ping):
        await sent.begun.wait()
    assert sent.pings == 0
    assert len(asyncio.all_tasks()) == 1


async def test_failed_ping_is_raised_by_the_next_write() -> None:
    async def fail() -> None:
        failed.set()
        raise ConnectionError("gone")

    failed = asyncio.Event()
    async with KeepAlive(0.001, LONG_S, fail) as pings:
        await failed.wait()
        while not all(task.done() for task in asyncio.all_tasks() - {asyncio.current_task()}):
            await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            pings.pause()
