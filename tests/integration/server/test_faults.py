"""Every fault of docs/faults.toml is reproduced over HTTP, for each upstream API and each client API.

Clients get the error listed there, the upstream connection is released, and no task is left.

client ─HTTP→ gateway ─HTTP→ a server with the fault
"""

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from docs import faults
from docs.faults import Fault

from dragoman import dialects
from dragoman.backends.http import circuit_breaker, retry
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig
from dragoman.core.errors import UpstreamError
from dragoman.core.events import AnyEvent, Failure, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.wire import passthrough, response_reader, sse
from dragoman.wire.sse import EVENT_LIMIT_BYTES
from support import worker_gateway
from support.fake_upstream import FRONTS, HEAD, RESPONSES, Play, Server, ask, ends_as_failed, server, soon, whole
from support.gateway import CHAT, DEADLINE_S, MESSAGES, http_request, shape_of
from support.sampling import sample
from support.scripted_backend import eventually, serving

pytestmark = pytest.mark.asyncio

APIS = dialects.names()
BEHIND = pytest.mark.parametrize("api", APIS)
SHORT_S = 0.1
"""Timeouts for faults with a silent server; all others keep the default."""


class Gate(NamedTuple):
    """A gateway with one upstream server."""

    url: str
    health: Callable[[], Mapping[str, Any]]
    """The state of the server in /health."""
    connections: Callable[[], int] | None = None

    @property
    def held(self) -> int:
        """The number of upstream connections in use; of several processes, that of requests."""
        return self.connections() if self.connections else self.health()["active"]


UNLIMITED_CALLS = GuardPolicy(max_calls=0)
"""A policy without a limit on calls per response."""


NEVER_OPENS = 10**6
"""Replaces the number of failures after which a server gets no requests."""
LINE_LIMIT_BYTES = 4 * 1024 * 1024
"""Replaces the limit of an event, so that these tests need less memory."""
PATCHES = {
    "dragoman.backends.http.circuit_breaker.FAILURE_THRESHOLD": NEVER_OPENS,
    **{f"{module.__name__}.EVENT_LIMIT_BYTES": LINE_LIMIT_BYTES for module in (sse, passthrough, response_reader)},
}
"""What the fixtures replace, for a gateway of several processes."""


@contextlib.asynccontextmanager
async def gate(url: str, api: str, policy: GuardPolicy = UNLIMITED_CALLS, **settings: Any) -> AsyncIterator[Gate]:
    """Checks at its end that no upstream connection, no concurrency slot and no task is left."""
    config = HttpConfig(url=url, api=api, **{"models": ("m",), "max_retries": 0, **settings})
    if worker_gateway.is_tested():
        async with worker_gateway.worker_gateway(config, policy, PATCHES) as processes:
            made = Gate(processes.url, processes.state)
            yield made
            await eventually(lambda: not made.held and not made.health()["waiting"])
        return
    before = asyncio.all_tasks()
    backend = HttpBackend("far", config, {})
    async with serving(Gateway([backend], policy=policy)) as (_, own):
        made = Gate(own, backend.health, lambda: backend._connection._client.active)
        running = asyncio.all_tasks()
        yield made
        await eventually(lambda: not made.held)
        assert (backend.health()["active"], backend.health()["waiting"]) == (0, 0)
        await eventually(lambda: len(asyncio.all_tasks() - before) <= len(running - before))
    await eventually(lambda: not asyncio.all_tasks() - before)


# The scripted upstream


def said(api: str, *events: AnyEvent) -> bytes:
    """The stream of these events in this API."""
    writer = dialects.get(api).writer(Request("m", (), stream=True))
    return b"".join(map(writer.feed, (Start("1", "m", 0), *events)))


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def streams(data: bytes) -> Play:
    return writes(HEAD + chunk(data) + b"0\r\n\r\n")


def resets(data: bytes) -> Play:
    """Sends these bytes, then resets the connection."""

    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    return play


async def long_line(server: Server, writer: asyncio.StreamWriter) -> None:
    """Sends 100 MB without a line break, or as much as the gateway accepts."""
    writer.write(HEAD + chunk(b"data: "))
    piece = chunk(b"x" * 10**5)
    for _ in range(1000):
        writer.write(piece)
        await writer.drain()


@pytest.fixture
def line_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sse, passthrough, response_reader):
        monkeypatch.setattr(module, "EVENT_LIMIT_BYTES", LINE_LIMIT_BYTES)


CALLS = 2_000
SLOW_DOWN = Failure(UpstreamError("slow down", status=429))
PAGE = "<html><style>b {}</style><h1>502 Bad Gateway</h1><hr>nginx</html>"


def begun(api: str) -> bytes:
    return said(api, TextDelta("It is"))


def many_calls(api: str) -> bytes:
    calls = ((ToolCallStart(n, f"call_{n}", "ping"), ToolCallDelta(n, "{}"), ToolCallEnd(n)) for n in range(CALLS))
    return said(api, *itertools.chain.from_iterable(calls), Finish("tool_calls"))


def writes(data: bytes, *, hangs: bool = False) -> Play:
    async def play(server: Server, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if hangs:
            await server.left.wait()

    return play


PLAYS: dict[str, Callable[[str], Play]] = {
    "hangs": lambda api: writes(b"", hangs=True),
    "hangs_after_its_head": lambda api: writes(HEAD, hangs=True),
    "hangs_in_mid_stream": lambda api: writes(HEAD + chunk(begun(api)), hangs=True),
    "resets": lambda api: resets(b""),
    "closes": lambda api: writes(b""),
    "resets_in_mid_stream": lambda api: resets(HEAD + chunk(begun(api))),
    "ends_early": lambda api: streams(begun(api)),
    "half_an_event": lambda api: streams(said(api, TextDelta("It is"), TextDelta(" fine"))[:-20]),
    "no_http": lambda api: writes(b"\x00\xff\x13garbage\r\n\r\n"),
    "garbage": lambda api: streams(b"data: {garbage}\n\n"),
    "garbage_in_mid_stream": lambda api: streams(begun(api) + b"data: {garbage}\n\n"),
    "no_utf8": lambda api: streams(said(api, TextDelta("caf@"), Finish("stop")).replace(b"@", b"\xe9")),
    "page_as_an_error": lambda api: whole(502, PAGE, "text/html"),
    "page_for_an_answer": lambda api: whole(200, PAGE, "text/html"),
    "error_for_an_answer": lambda api: streams(b"data: " + dialects.get(api).write_error(SLOW_DOWN.error) + b"\n\n"),
    "error_in_mid_stream": lambda api: streams(said(api, TextDelta("It is"), SLOW_DOWN)),
    "long_line": lambda api: long_line,
    "many_calls": lambda api: streams(many_calls(api)),
}
"""The scripted upstream for each fault, by API."""


# Errors sent to clients


class Told(NamedTuple):
    """The parts of an error, for any client API."""

    status: int
    type: str
    code: str
    words: str


def told(path: str, answer: httpx2.Response) -> Told:
    """Returns the error of a response; a stream has it in its last event."""
    if answer.status_code != 200:
        error = shape_of(path, answer.json())
    else:
        assert ends_as_failed(path, answer.text), answer.text[-300:]
        error = last_error(path, answer.text)
    return Told(answer.status_code, error.get("type") or "", error.get("code") or "", error["message"])


def last_error(path: str, stream: str) -> dict[str, Any]:
    last = [line for line in stream.splitlines() if line.startswith("data: {")][-1]
    body = json.loads(last.removeprefix("data: "))
    if path == RESPONSES:
        return dict(body["response"]["error"])
    return shape_of(path, body)


def expected(fault: Fault, path: str, stream: bool, url: str) -> Told:
    words = fault.words.replace("URL", url).replace(str(EVENT_LIMIT_BYTES), str(LINE_LIMIT_BYTES))
    begun = stream and fault.begun
    if path == MESSAGES:
        status, kind = fault.anthropic
        return Told(200 if begun else status, kind, "", words)
    status, kind, code = fault.openai
    if begun and path == RESPONSES:  # its stream errors have a code and no type
        return Told(200, "", fault.responses, words)
    return Told(200 if begun else status, kind, code, words)


FAULTS = faults.read().fault
TOLD = [(name, api) for name, fault in FAULTS.items() for api in APIS if not fault.answered]
TOLD = [(name, api) for name, api in TOLD if name != "long_line" or api == APIS[0]]  # same for all APIs
if worker_gateway.is_tested():  # each starts a gateway
    TOLD = list(sample(TOLD, 12, "faults with several processes"))


@pytest.mark.serve
@pytest.mark.usefixtures("line_limit")
@pytest.mark.parametrize(("name", "api"), TOLD)
async def test_fault_is_reported_to_clients(name: str, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", NEVER_OPENS)
    await check_fault(name, api, FRONTS)


UNDETECTED_FAULTS = ("garbage", "garbage_in_mid_stream")
"""Faults that passthrough does not detect."""


@pytest.mark.serve
@pytest.mark.usefixtures("line_limit")
@pytest.mark.parametrize(("name", "api"), [(name, api) for name, api in TOLD if name not in UNDETECTED_FAULTS])
async def test_fault_is_reported_to_clients_in_passthrough(
    name: str, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "FAILURE_THRESHOLD", NEVER_OPENS)
    await check_fault(name, api, [dialects.get(api).path], passthrough=True)


async def check_fault(name: str, api: str, fronts: Sequence[str], **settings: Any) -> None:
    fault = FAULTS[name]
    limits = {"idle_timeout_s" if fault.begun else "first_byte_timeout_s": SHORT_S} if "hangs" in name else {}
    async with contextlib.AsyncExitStack() as stack:
        behind = await stack.enter_async_context(server(PLAYS[name](api))) if name in PLAYS else None
        url = behind.url if behind else unused_url()
        made = await stack.enter_async_context(gate(url, api, **limits, **settings))
        for path, stream in itertools.product(fronts, (False, True)):
            unread = {"store": False} if path == RESPONSES and settings.get("passthrough") else {}
            answer = await ask(made.url, path, stream, **unread)
            assert told(path, answer) == expected(fault, path, stream, url)
            assert ("It is" in answer.text) == (stream and fault.begun)
            if behind:
                await soon(behind.left)


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_every_documented_fault_has_a_script() -> None:
    assert PLAYS.keys() | {"refuses"} == FAULTS.keys()
    assert STAGES.keys() == faults.read().leaving.keys()


async def test_faults_page_is_up_to_date() -> None:
    assert faults.page("").partition("\n\n")[2] in (faults.DATA.parent / "upstream-failures.md").read_text()


# Faults that are repaired


@pytest.mark.serve
@BEHIND
async def test_invalid_utf8_is_replaced_and_reported(api: str) -> None:
    async with server(PLAYS["no_utf8"](api)) as behind, gate(behind.url, api) as made:
        for path in FRONTS:
            answer = await ask(made.url, path, False)
            assert "caf\ufffd" in answer.text
            assert "invalid_utf8" in answer.headers["x-dragoman-warnings"]


@pytest.mark.serve
@BEHIND
async def test_response_with_2000_calls_is_complete(api: str) -> None:
    """Linear time is checked in tests/contract/test_upstream_responses.py."""
    async with server(PLAYS["many_calls"](api)) as behind, gate(behind.url, api) as made:
        for path in FRONTS:
            answer = (await ask(made.url, path, False, tools=[TOOLS[path]])).json()
            assert [call.get("call_id") or call["id"] for call in calls_in(answer)] == [
                f"call_{n}" for n in range(CALLS)
            ]


TOOLS: dict[str, Any] = {
    CHAT: {"type": "function", "function": {"name": "ping"}},
    MESSAGES: {"name": "ping", "input_schema": {"type": "object"}},
    RESPONSES: {"type": "function", "name": "ping", "parameters": {}},
}


def calls_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    if "choices" in answer:
        return list(answer["choices"][0]["message"]["tool_calls"])
    return list(answer.get("content") or answer["output"])


# Memory


def resident_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@pytest.mark.usefixtures("line_limit")
async def test_long_line_memory_is_bounded_by_event_limit() -> None:
    before, most = resident_bytes(), 0

    async def watched(server: Server, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        writer.write(HEAD + chunk(b"data: "))
        piece = chunk(b"x" * 10**6)
        for _ in range(100):
            writer.write(piece)
            await writer.drain()
            most = max(most, resident_bytes())

    async with server(watched) as behind, gate(behind.url, APIS[0]) as made:
        told = (await ask(made.url, CHAT, True)).text
    assert f"{LINE_LIMIT_BYTES}" in told, told
    assert most - before < 3 * LINE_LIMIT_BYTES, "what grows in place may be copied once"


# Client disconnects


async def until_left(made: Gate, behind: Server, reader: asyncio.StreamReader) -> None:
    await eventually(lambda: behind.asked and made.held == 1)


async def until_words(made: Gate, behind: Server, reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await reader.readuntil(b"It is")


async def until_waiting(made: Gate, behind: Server, reader: asyncio.StreamReader) -> None:
    await eventually(lambda: made.health()["waiting"])


async def until_active(made: Gate, behind: Server, reader: asyncio.StreamReader) -> None:
    await eventually(lambda: made.health()["active"])


class Stage(NamedTuple):
    """The stage at which a client disconnects."""

    play: Play
    reached: Callable[[Gate, Server, asyncio.StreamReader], Awaitable[None]]
    streams: tuple[bool, ...] = (True, False)


BEGUN = writes(HEAD + chunk(begun("openai_chat")), hangs=True)
STAGES = {
    "queued": Stage(BEGUN, until_waiting),
    "connecting": Stage(BEGUN, until_active),
    "between_tries": Stage(whole(503, "{}"), until_active),
    "before_the_head": Stage(writes(b"", hangs=True), until_left),
    "before_the_first_byte": Stage(writes(HEAD, hangs=True), until_left),
    "streaming": Stage(BEGUN, until_words, (True,)),
    "whole": Stage(BEGUN, until_left, (False,)),
}


@contextlib.contextmanager
def full() -> Iterator[str]:
    """The URL of a server whose backlog is full, so that no connection succeeds."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.serve
@pytest.mark.parametrize("path", FRONTS)
@pytest.mark.parametrize("name", STAGES)
async def test_client_disconnect_releases_upstream_connection(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = STAGES[name]
    settings: dict[str, Any] = {"max_concurrency": 1} if name == "queued" else {"max_retries": 9}
    paused = asyncio.Event()

    async def pause(wait_s: float) -> None:
        paused.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(retry, "sleep", pause)
    async with server(stage.play) as behind, contextlib.AsyncExitStack() as stack:
        url = stack.enter_context(full()) if name == "connecting" else behind.url
        made = await stack.enter_async_context(gate(url, "openai_chat", **settings))
        first = await asking(made.url, path, True) if name == "queued" else None
        await eventually(lambda: first is None or behind.asked)
        for stream in stage.streams:
            reader, writer = await asking(made.url, path, stream)
            await stage.reached(made, behind, reader)
            if name == "between_tries":
                await (eventually(lambda: behind.asked) if worker_gateway.is_tested() else soon(paused))
            if name == "connecting":
                await eventually(lambda: made.held)
            writer.close()
            await eventually(lambda: made.health()["waiting"] == 0)
            await eventually(lambda: made.health()["active"] == (1 if first else 0))
            assert name != "connecting" or not behind.asked
            if behind.asked and not first:
                await soon(behind.left)
                behind.asked = []
        if first:
            assert len(behind.asked) == 1
            first[1].close()
            await soon(behind.left)


async def asking(url: str, path: str, stream: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Sends a request on a raw connection, which the test can close."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    said = {"input": "hi"} if path == RESPONSES else {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    writer.write(http_request(path, json.dumps({"model": "m", "stream": stream, **said}).encode()))
    return reader, writer
