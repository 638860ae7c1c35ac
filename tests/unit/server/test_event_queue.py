"""From backend to client: nothing is lost, nothing waits, silence is noticed, a slow client holds the backend."""

import asyncio

from dragoman.core.events import AnyEvent, TextDelta
from dragoman.server.event_queue import EventQueue

LONG_S = 30.0


def texts(count: int) -> list[AnyEvent]:
    return [TextDelta(str(i)) for i in range(count)]


async def test_gives_all_that_is_there_at_once() -> None:
    inbox = EventQueue(10)
    for event in texts(3):
        inbox.put(event)
    assert await inbox.drain(LONG_S) == (texts(3), False)
    inbox.finish()
    assert await inbox.drain(LONG_S) == ([], True)


async def test_wakes_for_an_event_and_for_the_end() -> None:
    inbox = EventQueue(10)
    for tell, expected in ((lambda: inbox.put(TextDelta("0")), (texts(1), False)), (inbox.finish, ([], True))):
        asyncio.get_running_loop().call_soon(tell)
        assert await inbox.drain(LONG_S) == expected
    inbox.close()


async def test_the_last_events_come_with_the_end() -> None:
    inbox = EventQueue(10)
    inbox.put(TextDelta("0"))
    inbox.finish()
    assert await inbox.drain(LONG_S) == (texts(1), True)


async def test_silence_is_no_event_and_no_end() -> None:
    inbox = EventQueue(10)
    assert await inbox.drain(0.01) == ([], False)
    inbox.put(TextDelta("0"))
    assert await inbox.drain(0.01) == (texts(1), False)
    assert await inbox.drain(0.01) == ([], False)


async def test_a_shorter_silence_does_not_wait_for_the_longer_one_before() -> None:
    inbox = EventQueue(10)
    asyncio.get_running_loop().call_soon(inbox.put, TextDelta("0"))
    await inbox.drain(LONG_S)
    async with asyncio.timeout(LONG_S / 2):
        assert await inbox.drain(0.01) == ([], False)
    inbox.close()


async def test_a_longer_silence_is_not_cut_short_by_the_bell_of_the_one_before() -> None:
    loop, inbox = asyncio.get_running_loop(), EventQueue(10)
    loop.call_soon(inbox.put, TextDelta("0"))
    await inbox.drain(0.01)
    began = loop.time()
    assert await inbox.drain(0.05) == ([], False)
    assert loop.time() - began >= 0.045


async def test_a_full_inbox_holds_the_backend_until_the_client_takes() -> None:
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


async def test_a_cancelled_look_loses_nothing() -> None:
    inbox = EventQueue(10)
    look = asyncio.ensure_future(inbox.drain(LONG_S))
    await asyncio.sleep(0)
    look.cancel()
    await asyncio.wait({look})
    inbox.put(TextDelta("0"))
    assert await inbox.drain(LONG_S) == (texts(1), False)
    inbox.close()
