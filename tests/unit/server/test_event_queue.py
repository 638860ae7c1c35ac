"""Events from backend to client: no loss, no delay, timeouts, and backpressure from slow clients."""

import asyncio

from dragoman.core.events import AnyEvent, TextDelta
from dragoman.server.event_queue import EventQueue

LONG_S = 30.0


def texts(count: int) -> list[AnyEvent]:
    return [TextDelta(str(i)) for i in range(count)]


async def test_queue_returns_all_waiting_events() -> None:
    inbox = EventQueue(10)
    for event in texts(3):
        inbox.put(event)
    assert await inbox.drain(LONG_S) == (texts(3), False)
    inbox.finish()
    assert await inbox.drain(LONG_S) == ([], True)


async def test_drain_wakes_for_event_and_finish() -> None:
    inbox = EventQueue(10)
    for tell, expected in ((lambda: inbox.put(TextDelta("0")), (texts(1), False)), (inbox.finish, ([], True))):
        asyncio.get_running_loop().call_soon(tell)
        assert await inbox.drain(LONG_S) == expected
    inbox.close()


async def test_last_events_are_returned_with_finish() -> None:
    inbox = EventQueue(10)
    inbox.put(TextDelta("0"))
    inbox.finish()
    assert await inbox.drain(LONG_S) == (texts(1), True)


async def test_drain_timeout_returns_no_events() -> None:
    inbox = EventQueue(10)
    assert await inbox.drain(0.01) == ([], False)
    inbox.put(TextDelta("0"))
    assert await inbox.drain(0.01) == (texts(1), False)
    assert await inbox.drain(0.01) == ([], False)


async def test_shorter_timeout_after_longer_one_is_honoured() -> None:
    inbox = EventQueue(10)
    asyncio.get_running_loop().call_soon(inbox.put, TextDelta("0"))
    await inbox.drain(LONG_S)
    async with asyncio.timeout(LONG_S / 2):
        assert await inbox.drain(0.01) == ([], False)
    inbox.close()


async def test_longer_timeout_after_shorter_one_is_honoured() -> None:
    loop, inbox = asyncio.get_running_loop(), EventQueue(10)
    loop.call_soon(inbox.put, TextDelta("0"))
    await inbox.drain(0.01)
    began = loop.time()
    assert await inbox.drain(0.05) == ([], False)
    assert loop.time() - began >= 0.045


async def test_full_queue_blocks_backend_until_client_reads() -> None:
    inbox, put = EventQueue(2), list[int]()

    async def backend() -> None:
        for i, event in enumerate(texts(5)):
            inbox.put(event)
            put.append(i)
            if inbox.full:
                await inbox.wait_for_room()
        inbox.finish()

    pump = asyncio.ensure_future(backend())
    await asyncio.sleep(0)
    assert put == [0, 1]
    taken: list[AnyEvent] = []
    ended = False
    while not ended:
        batch, ended = await inbox.drain(LONG_S)
        assert len(batch) <= 2
        taken += batch
    inbox.close()
    await pump
    assert taken == texts(5)


async def test_cancelled_drain_loses_no_event() -> None:
    inbox = EventQueue(10)
    look = asyncio.ensure_future(inbox.drain(LONG_S))
    await asyncio.sleep(0)
    look.cancel()
    await asyncio.wait({look})
    inbox.put(TextDelta("0"))
    assert await inbox.drain(LONG_S) == (texts(1), False)
    inbox.close()
