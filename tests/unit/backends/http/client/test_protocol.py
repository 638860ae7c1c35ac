"""Responses of HTTP/1.1, split at every position, cut off at every position, and invalid ones."""

import asyncio
import types
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dragoman.backends.http.client import protocol
from dragoman.backends.http.client.errors import (
    ReadError,
    ReadTimeout,
    RemoteDisconnected,
    RemoteProtocolError,
)
from support.raw_server import (
    CHUNKED,
    COUNTED,
    FRAMINGS,
    TIMEOUT_S,
    chunked,
)

pytestmark = pytest.mark.asyncio


class Fed:
    """A connection whose bytes come from the test, without a socket."""

    def __init__(self) -> None:
        self.aborted = False
        self.connection = protocol.ClientConnection(lambda connection: None)
        self.connection.connection_made(self)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    async def reply(self, *parts: bytes, closes: bool = False) -> bytes:
        """Returns the body of a response that arrives in these parts."""
        connection = self.connection
        sending = asyncio.ensure_future(connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", TIMEOUT_S))
        await asyncio.sleep(0)
        for part in parts:
            connection.data_received(part)
        if closes or self.aborted:
            connection.connection_lost(None)
        await sending
        body = bytearray()
        while piece := await connection.read():
            body += piece
        return bytes(body)


@pytest.mark.parametrize("name", FRAMINGS)
async def test_response_split_at_each_position_is_read(name: str) -> None:
    data, is_kept = FRAMINGS[name], name != "uncounted"
    for at in range(1, len(data)):
        fed = Fed()
        assert await fed.reply(data[:at], data[at:], closes=not is_kept) == b"Hello, world", at
        assert fed.connection.status == 200
        assert fed.connection.headers["x-a"] == "1"
        assert "x-b" not in fed.connection.headers
        assert "link" not in fed.connection.headers
        assert fed.connection.is_reusable == is_kept


@pytest.mark.parametrize("name", FRAMINGS)
async def test_response_in_single_bytes_is_read(name: str) -> None:
    data = FRAMINGS[name]
    fed = Fed()
    assert await fed.reply(*(data[at : at + 1] for at in range(len(data))), closes=True) == b"Hello, world"


@pytest.mark.parametrize("name", ["chunked", "counted", "interim", "trailers"])
async def test_end_of_connection_at_each_position_is_reported(name: str) -> None:
    data = FRAMINGS[name]
    head = data.index(b"HTTP/1.1 200")
    head = data.index(b"\r\n\r\n", head) + 4
    for at in range(len(data)):
        expected = RemoteDisconnected if at < head else ReadError
        with pytest.raises(expected):
            await Fed().reply(data[:at], closes=True)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nfoo",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\nok\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 0123456789\r\n" * 5000,
        b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * 70_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,
        CHUNKED[:-2].replace(b"Hello, ", b"")[: CHUNKED.index(b"\r\n\r\n") + 4] + b"0\r\n" + b"X-B: 1\r\n" * 12_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 90_000,
    ],
    ids=lambda data: repr(data[:40]),
)
async def test_invalid_response_is_rejected(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        await Fed().reply(*(data[at : at + 9999] for at in range(0, len(data), 9999)))


async def test_head_with_many_headers_is_read() -> None:
    many = b"".join(b"X-%d: %d\r\n" % (n, n) for n in range(300))
    fed = Fed()
    assert await fed.reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + many + b"\r\n") == b""
    assert fed.connection.headers["x-299"] == "299"


@pytest.mark.parametrize("status", [204, 304])
async def test_status_without_body_ends_at_its_head(status: int) -> None:
    fed = Fed()
    assert await fed.reply(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status) == b""
    assert fed.connection.is_reusable


@pytest.mark.parametrize(
    "garbage", [b"x", b"HTTP/1.1 200 OK\r\n", COUNTED, b"\0" * 10, b"\xff"], ids=lambda data: repr(data[:10])
)
@pytest.mark.parametrize("name", ["chunked", "counted"])
async def test_connection_with_data_after_response_is_not_reused(name: str, garbage: bytes) -> None:
    fed = Fed()
    assert await fed.reply(FRAMINGS[name] + garbage) == b"Hello, world"
    assert not fed.connection.is_reusable
    fed = Fed()
    assert await fed.reply(FRAMINGS[name], garbage) == b"Hello, world"
    assert not fed.connection.is_reusable
    fed = Fed()
    await fed.reply(FRAMINGS[name])
    fed.connection.reset(15)
    fed.connection.data_received(garbage)
    assert fed.connection.is_closed


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n",
    ],
)
async def test_connection_that_server_closes_is_not_reused(head: bytes) -> None:
    fed = Fed()
    assert await fed.reply(head + b"ok") == b"ok"
    assert not fed.connection.is_reusable


async def test_pieces_that_arrived_together_are_returned_in_one() -> None:
    connection = Fed().connection
    sending = asyncio.ensure_future(connection.send(b"", b"", TIMEOUT_S))
    await asyncio.sleep(0)
    for part in (CHUNKED[:-5] + chunked(b"!", b"?")[:-5], chunked(b"more")):
        connection.data_received(part)
    await sending
    assert await connection.read() == b"Hello, world!?more"
    assert await connection.read() == b""
    assert await connection.read() == b""


async def test_bytes_before_an_error_are_delivered() -> None:
    connection = Fed().connection
    sending = asyncio.ensure_future(connection.send(b"", b"", TIMEOUT_S))
    await asyncio.sleep(0)
    connection.data_received(CHUNKED[:-5] + b"zz\r\n")
    await sending
    assert await connection.read() == b"Hello, world"
    with pytest.raises(RemoteProtocolError):
        await connection.read()


# Timeouts


class Clock:
    """The part of an event loop that a connection uses, with a time that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.timers_set = 0

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        timer = (when, call)
        self.timers.append(timer)
        self.timers_set += 1
        return types.SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer[0] <= self.now]:
            self.timers.remove(timer)
            timer[1]()


@pytest.fixture
async def timed() -> tuple[Fed, Clock]:
    fed, clock = Fed(), Clock()
    fed.connection._loop = clock  # type: ignore[assignment]
    return fed, clock


async def waiting(call: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    return task


async def test_limits_apply_to_each_wait(timed: tuple[Fed, Clock]) -> None:
    (fed, clock), connection = timed, timed[0].connection
    sending = await waiting(connection.send(b"", b"", 600))
    clock.advance(599)
    connection.data_received(CHUNKED[:-5])
    await sending
    connection.read_timeout_s = 300
    assert await connection.read()
    clock.advance(5000)  # a reader that is busy
    reading = await waiting(connection.read())
    clock.advance(299)
    connection.data_received(b"1")  # any byte is a sign of life
    await asyncio.sleep(0)
    clock.advance(299)
    assert not reading.done()
    clock.advance(1)
    with pytest.raises(ReadTimeout):
        await reading
    assert fed.aborted


async def test_interim_bytes_do_not_extend_the_limit(timed: tuple[Fed, Clock]) -> None:
    fed, clock = timed
    sending = await waiting(fed.connection.send(b"", b"", 600))
    for _ in range(599):
        clock.advance(1)
        fed.connection.data_received(b"HTTP/1.1 102 Processing\r\n\r\n")
    assert not sending.done()
    clock.advance(1)
    with pytest.raises(ReadTimeout):
        await sending


async def test_idle_connection_closes_and_used_one_does_not(timed: tuple[Fed, Clock]) -> None:
    fed, clock = timed
    for _ in range(5):
        await fed.reply(COUNTED)
        fed.connection.reset(15)
        clock.advance(14)
    await fed.reply(COUNTED)
    clock.advance(20)  # complete, but not given back
    assert not fed.aborted
    fed.connection.reset(15)
    clock.advance(14.9)
    assert not fed.aborted
    clock.advance(0.1)
    assert fed.aborted
    assert clock.timers == []


async def test_a_timer_serves_many_waits(timed: tuple[Fed, Clock]) -> None:
    fed, clock = timed
    connection = fed.connection
    sending = await waiting(connection.send(b"", b"", 600))
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    await sending
    for _ in range(1000):
        reading = await waiting(connection.read())
        clock.advance(0.1)
        connection.data_received(b"1\r\nx\r\n")
        assert await reading == b"x"
    assert clock.timers_set == 1
