"""The connection to an upstream server: timeouts, retries, the concurrency limit and the circuit breaker."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator

import pytest
import trustme

from dragoman.backends.http import circuit_breaker, retry
from dragoman.backends.http import connection as connections
from dragoman.backends.http.client import connect as client_connect
from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.core.errors import (
    BackendUnavailableError,
    ConfigError,
    DragomanError,
    UpstreamError,
    UpstreamTimeoutError,
)
from support.fake_upstream import END, HEAD, Play, Server, ask, gateway, piece, says_nothing, server, soon, told, whole
from support.gateway import CHAT, DEADLINE_S, MESSAGES
from support.http_client import http_client
from support.refusing_upstream import COMPLETION
from support.scripted_backend import eventually

pytestmark = pytest.mark.asyncio

REFUSED = '{"error": {"message": "because"}}'


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between retries, in seconds; they are recorded and skipped."""
    waited: list[float] = []

    async def pause(wait_s: float) -> None:
        waited.append(wait_s)

    monkeypatch.setattr(retry, "sleep", pause)
    monkeypatch.setattr("random.random", lambda: 0.0)
    return waited


def in_turn(*plays: Play) -> Play:
    """Answers each request with the next of these plays, and all further requests with the last."""

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        await plays[min(len(server.asked), len(plays)) - 1](server, writer)

    return play


async def drops(server: Server, writer: asyncio.StreamWriter) -> None:
    """Closes the connection without a response."""


@contextlib.asynccontextmanager
async def connection(url: str, **settings: object) -> AsyncIterator[UpstreamConnection]:
    made = UpstreamConnection("far", HttpConfig(url=url, **settings), {}, versioned=True, key="")  # type: ignore[arg-type]
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def read_all(made: UpstreamConnection) -> bytes:
    async with contextlib.aclosing(made.stream_post(CHAT, b"{}", {})) as pieces:
        return b"".join([piece async for piece in pieces])


# Retries


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_retryable_status_is_retried_with_backoff(status: int, pauses: list[float]) -> None:
    play = in_turn(whole(status, REFUSED), whole(status, REFUSED), whole(200, COMPLETION))
    async with server(play) as behind, gateway(behind.url, max_retries=2) as url:
        answer = await ask(url, MESSAGES, False)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]
    assert pauses == [0.5, 1.0]
    bodies = {body for _, _, body in behind.asked}
    assert (len(behind.asked), len(bodies)) == (3, 1)


async def test_request_is_retried_at_most_max_retries_times(pauses: list[float]) -> None:
    async with server(whole(503, REFUSED)) as behind, gateway(behind.url, max_retries=2) as url:
        answer = await ask(url, CHAT, True)
    assert (answer.status_code, told(CHAT, answer)) == (503, "the server answered 503: because")
    assert len(behind.asked) == 3


async def test_retry_after_of_server_is_honoured(pauses: list[float]) -> None:
    play = in_turn(whole(429, REFUSED, retry_after_ms="250"), whole(429, REFUSED, retry_after="1"), whole(200, "ok"))
    async with server(play) as behind, connection(behind.url) as far:
        assert await read_all(far) == b"ok"
    assert pauses == [0.25, 1.0]


@pytest.mark.parametrize(
    ("status", "headers"),
    [(400, {}), (401, {}), (404, {}), (501, {}), (503, {"x_should_retry": "false"}), (429, {"retry_after": "30"})],
    ids=str,
)
async def test_non_retryable_status_is_not_retried(status: int, headers: dict[str, str], pauses: list[float]) -> None:
    async with server(whole(status, REFUSED, **headers)) as behind, connection(behind.url) as far:
        with pytest.raises(UpstreamError) as refused:
            await read_all(far)
    assert refused.value.status == status
    assert refused.value.retry_after_s == (30 if headers.get("retry_after") else None)
    assert (len(behind.asked), pauses) == (1, [])


async def test_refused_connection_is_retried(pauses: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with connection(nobody) as far:
        with pytest.raises(BackendUnavailableError, match=f"far cannot be reached at {nobody}: "):
            await read_all(far)
    assert pauses == [0.5, 1.0]


@contextlib.asynccontextmanager
async def untrusted_tls_server() -> AsyncIterator[str]:
    """The URL of a server whose certificate is not trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0, ssl=context) as listening:
        yield f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def test_untrusted_certificate_is_reported() -> None:
    async with untrusted_tls_server() as url, connection(url, max_retries=0) as far:
        with pytest.raises(BackendUnavailableError, match="its certificate is not trusted, unable to get local issuer"):
            await read_all(far)


async def test_server_without_tls_is_reported() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with connection(url, max_retries=0) as far:
            with pytest.raises(
                BackendUnavailableError, match=f"far cannot be reached at {url}: it does not speak TLS, "
            ):
                await read_all(far)


async def test_unknown_host_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_found(*args: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with connection("http://far.invalid", max_retries=0) as far:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", not_found)
        with pytest.raises(
            BackendUnavailableError, match=r"cannot be reached at http://far\.invalid: Name or service not known"
        ):
            await read_all(far)


async def test_dropped_connection_is_retried_without_wait(pauses: list[float]) -> None:
    async with server(in_turn(drops, whole(200, "ok"))) as behind, connection(behind.url, max_retries=0) as far:
        assert await read_all(far) == b"ok"
    assert (len(behind.asked), pauses) == (2, [0.0])


async def test_started_response_is_not_retried(pauses: list[float]) -> None:
    async def breaks(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + piece({"content": "It"}))

    async with server(breaks) as behind, connection(behind.url) as far:
        with pytest.raises(BackendUnavailableError, match="far closed the connection in the middle"):
            await read_all(far)
    assert (len(behind.asked), pauses) == (1, [])


@pytest.mark.parametrize("stream", [True, False])
async def test_connection_is_reused_if_last_chunk_arrives_late(stream: bool) -> None:
    ended, connections = [], 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().lower():
                await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
                writer.write(HEAD.replace(b"connection: close\r\n", b"") + piece({"content": "Hi"}, "stop") + END[:-5])
                await writer.drain()
                for _ in range(9):  # so that the two parts are read separately
                    await asyncio.sleep(0)
                writer.write(END[-5:])
                ended.append(True)
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening, gateway(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as url:
        for _ in range(4):
            assert (await ask(url, CHAT, stream)).status_code == 200
    assert (len(ended), connections) == (4, 1)


# Timeouts


async def test_first_byte_timeout_is_separate_and_not_retried(pauses: list[float]) -> None:
    async with (
        server(says_nothing) as behind,
        connection(behind.url, first_byte_timeout_s=0.05, idle_timeout_s=60) as far,
    ):
        with pytest.raises(
            UpstreamTimeoutError, match=r"sent no response within 0.05 s \(setting first_byte_timeout_s\)"
        ):
            await read_all(far)
        await soon(behind.left)
    assert len(behind.asked) == 1, "it may still be at work"


async def sends_only_head(server: Server, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    await writer.drain()
    await server.left.wait()


async def test_response_head_alone_does_not_stop_first_byte_timeout() -> None:
    async with (
        server(sends_only_head) as behind,
        connection(behind.url, first_byte_timeout_s=0.05, idle_timeout_s=60) as far,
    ):
        with pytest.raises(UpstreamTimeoutError, match="setting first_byte_timeout_s"):
            await read_all(far)
        await soon(behind.left)


async def test_server_that_does_not_read_the_body_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        async with connection(url, first_byte_timeout_s=0.05, connect_timeout_s=1.0) as far:  # both of them apply
            with pytest.raises(UpstreamTimeoutError, match="setting first_byte_timeout_s"):
                async for _ in far.stream_post(CHAT, b"x" * 8_000_000, {}):
                    pass


async def test_connect_timeout_is_retried_and_reported(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    async def never(*args: object, **more: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(client_connect, "_connect_socket", never)
    async with connection("http://127.0.0.1:9", connect_timeout_s=0.02, max_retries=1) as far:
        words = r"could not be reached at http://127.0.0.1:9 within 0.02 s \(setting connect_timeout_s\)"
        with pytest.raises(BackendUnavailableError, match=words):
            await read_all(far)
    assert pauses == [0.5]


async def test_sse_comments_reset_timeouts() -> None:
    async def comments(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(12):
            writer.write(b"e\r\n: keep-alive\n\n\r\n")
            with contextlib.suppress(TimeoutError):  # in sum longer than the timeouts, each far shorter
                await asyncio.wait_for(server.left.wait(), 0.05)
        writer.write(piece({"content": "done"}) + END)

    async with server(comments) as behind, connection(behind.url, first_byte_timeout_s=0.5, idle_timeout_s=0.5) as far:
        assert b"done" in await read_all(far)


async def test_socket_has_tcp_keepalive() -> None:
    with client_connect._new_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


async def test_trial_is_not_retried_and_does_not_count_for_breaker(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(500, REFUSED)) as behind, connection(behind.url) as far:
        for _ in range(3):
            with pytest.raises(UpstreamError):
                await anext(far.stream_post(CHAT, b"{}", {}, is_trial=True))
        assert far.health()["breaker"] == "closed"
    assert (len(behind.asked), pauses) == (3, [])


async def test_half_open_breaker_sends_one_request_without_retry(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    monkeypatch.setattr(circuit_breaker, "COOL_DOWN_S", 0.0)
    async with server(whole(500, REFUSED)) as behind, connection(behind.url, max_retries=2) as far:
        for asked in (3, 4, 5):
            with pytest.raises(UpstreamError):
                await read_all(far)
            assert len(behind.asked) == asked
    assert len(pauses) == 2
    assert caplog.messages[0] == "far is retried in 0.5 s: status 500"


async def test_a_server_that_rejects_requests_is_not_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(429, REFUSED)) as behind, connection(behind.url, max_retries=0) as far:
        for _ in range(3):
            with pytest.raises(DragomanError, match="because"):
                await read_all(far)
        assert far.health()["breaker"] == "closed"
    assert len(behind.asked) == 3


async def test_open_breaker_still_allows_model_list(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 1)
    async with server(whole(500, REFUSED)) as behind, connection(behind.url, max_retries=0) as far:
        with pytest.raises(UpstreamError):
            await read_all(far)
        with pytest.raises(BackendUnavailableError, match="gets no requests for a while"):
            await far.request("/v1/messages/count_tokens", b"{}")
        assert (await far.request("/v1/models")).status == 500
    assert len(behind.asked) == 2


async def test_response_body_is_read_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RESPONSE_LIMIT_BYTES", 5000)
    monkeypatch.setattr(connections, "ERROR_BODY_LIMIT_BYTES", 3000)

    for status, most in ((200, 5000), (500, 3000)):

        async def endless(server: Server, writer: asyncio.StreamWriter, status: int = status) -> None:
            writer.write(HEAD.replace(b"200", str(status).encode()))
            while not server.left.is_set():
                writer.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
                await writer.drain()

        async with server(endless) as behind, connection(behind.url) as far:
            assert len((await far.request("/v1/models")).body) == most
            await soon(behind.left)


# Settings that cannot be sent


@pytest.mark.parametrize(
    ("url", "key"), [("http://127.0.0.1:9", "a\nb"), ("127.0.0.1:9", "k"), ("http://127.0.0.1:x", "k")]
)
async def test_url_or_key_that_cannot_be_sent_is_rejected(url: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"- at upstreams\.far"):
        UpstreamConnection("far", HttpConfig(url=url), {"x-api-key": key}, versioned=True, key=key)


async def test_unrequested_content_encoding_is_reported(pauses: list[float]) -> None:
    async with server(whole(200, "x", content_encoding="br")) as behind, connection(behind.url, max_retries=0) as far:
        words = "far at http://127.0.0.1:.* sent a response with content-encoding br, which was not requested"
        with pytest.raises(BackendUnavailableError, match=words):
            await read_all(far)


async def test_metadata_request_is_retried_if_connection_was_closed() -> None:
    async with server(in_turn(drops, whole(200, "ok"))) as behind, connection(behind.url) as far:
        assert (await far.request("/v1/models")).body == b"ok"
    assert len(behind.asked) == 2


# Concurrency limit


async def waits_for_go(server: Server, writer: asyncio.StreamWriter) -> None:
    """Delays its response until the test sets `go` or the client disconnects."""
    go = asyncio.ensure_future(server.go.wait())
    left = asyncio.ensure_future(server.left.wait())
    await asyncio.wait({go, left}, return_when=asyncio.FIRST_COMPLETED)
    go.cancel()
    left.cancel()
    await whole(200, COMPLETION)(server, writer)


async def test_requests_beyond_concurrency_limit_and_queue_get_429() -> None:
    async with server(waits_for_go) as behind, gateway(behind.url, max_concurrency=1, max_queue=1) as url:
        first = asyncio.ensure_future(ask(url, CHAT, False))
        await eventually(lambda: behind.asked)
        second = asyncio.ensure_future(ask(url, CHAT, False))
        await eventually_state(url, active=1, waiting=1)
        for path, kind in ((CHAT, "rate_limit_exceeded"), (MESSAGES, "rate_limit_error")):
            third = await ask(url, path, True)
            assert third.status_code == 429
            assert third.headers["retry-after"] == "4"
            assert kind in third.text
            assert "the one concurrency slot of far is in use and its queue of 1 is full" in third.text
        assert len(behind.asked) == 1
        behind.go.set()
        assert [answer.status_code for answer in (await first, await second)] == [200, 200]
        await eventually_state(url, active=0, waiting=0)


async def test_client_that_leaves_queue_is_not_sent_upstream() -> None:
    async with server(waits_for_go) as behind, gateway(behind.url, max_concurrency=1, max_queue=1) as url:
        first = asyncio.ensure_future(ask(url, CHAT, False))
        await eventually(lambda: behind.asked)
        second = asyncio.ensure_future(ask(url, CHAT, False))
        await eventually_state(url, waiting=1)
        second.cancel()
        await eventually_state(url, waiting=0)
        behind.go.set()
        assert (await first).status_code == 200
    assert len(behind.asked) == 1


async def eventually_state(url: str, **wanted: object) -> None:
    """Waits until /health reports these values for the server."""
    async with (
        http_client(url) as client,
        asyncio.timeout(DEADLINE_S),
    ):
        while True:
            (state,) = (await client.get("/health")).json()["backends"]
            if wanted.items() <= state.items():
                return


# Circuit breaker


async def test_breaker_opens_after_repeated_failures_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 2)
    async with server(whole(500, REFUSED)) as behind, gateway(behind.url) as url:
        for path in (CHAT, MESSAGES):
            assert (await ask(url, path, False)).status_code == 502
        for path, status in ((CHAT, 503), (MESSAGES, 529)):
            refused = await ask(url, path, True)
            assert refused.status_code == status
            assert 1 <= int(refused.headers["retry-after"]) <= circuit_breaker.COOL_DOWN_S
            assert told(path, refused) == "far failed 2 times in a row and gets no requests for a while"
        await eventually_state(url, breaker="open", ready=True)
        assert len(behind.asked) == 2
        monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", 3)  # as if the cool-down had ended
        behind.play = whole(200, COMPLETION)
        assert (await ask(url, CHAT, False)).status_code == 200
        await eventually_state(url, breaker="closed")
