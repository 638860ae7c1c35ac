"""A scripted backend, and the application with it under uvicorn."""

import asyncio
import contextlib
import json
import queue
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import httpx2
import uvicorn

from dragoman import dialects
from dragoman.config.server import NO_CAPTURE, CaptureConfig, ServerConfig
from dragoman.core.backend import Backend, EventStream, ExchangeContext, ServedModel
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate
from dragoman.core.messages import Request, Usage
from dragoman.gateway.gateway import Gateway
from dragoman.guard.policy import GuardPolicy
from dragoman.records.writer import RecordWriter
from dragoman.server.app import App
from dragoman.server.keys.ring import KeyRing
from dragoman.usage_limits.admission import UsageLimits
from support.gateway import DEADLINE_S, http_request
from support.http_client import http_client

Script: TypeAlias = Callable[["Scripted", Request], AsyncGenerator[AnyEvent | list[AnyEvent], None]]
"""Yields events, or lists of events that arrive together."""


class Scripted(Backend):
    """A backend that runs the test's generator, and records how it ended."""

    def __init__(self, script: Script, names: Sequence[str] = ()) -> None:
        """Offers a model `m` (alias `n`), and models with these names."""
        self._script = script
        self._names = names
        self.go = asyncio.Event()
        """Set by the test; the script can wait for it."""
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self._pinged = asyncio.Event()
        self.sent = 0
        self.running = 0
        self.life: list[str] = []
        self.tokens: int | None = None
        """The token count that it reports; None: it does not count."""

    def models(self) -> Sequence[ServedModel]:
        return (ServedModel("m", 100, aliases=("n",)), *(ServedModel(name) for name in self._names))

    async def refresh_models(self) -> None:
        self.life.append("refresh")

    async def count_tokens(self, request: Request) -> int | None:
        return self.tokens

    async def generate(self, request: Request, context: ExchangeContext) -> EventStream:
        self.running += 1
        self.begun.set()
        try:
            async with contextlib.aclosing(self._script(self, request)) as events:
                async for each in events:
                    first, *rest = each if isinstance(each, list) else [each]
                    self.sent += 1 + len(rest)
                    if isinstance(first, Start):
                        first = Start(context.id, request.model, context.created, first.input_tokens)
                    yield [first, *rest]
        finally:
            self.running -= 1
            self.over.set()

    async def pause(self, request: Request) -> None:
        """Waits until the client has received a ping; returns at once without streaming."""
        self._pinged.clear()
        if request.stream:
            async with asyncio.timeout(DEADLINE_S):
                await self._pinged.wait()

    def ping_sent(self) -> None:
        """Called for each sent ping."""
        self._pinged.set()

    async def start(self) -> None:
        self.life.append("start")

    async def close(self) -> None:
        self.life.append("close")

    def health(self) -> Mapping[str, object]:
        return {"backend": "scripted", "ready": True, "active": self.running}


class Served:
    """The application under uvicorn, in this event loop."""

    def __init__(self, backend: Scripted, server: uvicorn.Server, url: str, sent: "list[Sent]") -> None:
        self.backend = backend
        self.server = server
        self.url = url
        self.sent = sent

    def client(self) -> httpx2.AsyncClient:
        return http_client(self.url)

    async def raw(self, path: str, stream: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Sends a request over a new raw connection with a small receive buffer."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        own = socket.socket()
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        own.setblocking(False)
        await asyncio.get_running_loop().sock_connect(own, (host, int(port)))
        reader, writer = await asyncio.open_connection(sock=own, limit=2**16)
        writer.write(http_request(path, json.dumps(body(stream)).encode()))
        await writer.drain()
        return reader, writer


def body(stream: bool = True) -> dict[str, object]:
    message = {"role": "user", "content": "secret words of the user"}
    return {"model": "n", "messages": [message], "max_tokens": 10, "stream": stream}


AS_PLAYED = GuardPolicy(enabled=False)
"""Calls are unchanged, since a script often acts as the upstream of another gateway."""

IMPATIENT = {"max_status_delay_s": 0.01, "keepalive_interval_s": 0.01}
"""Settings with which even a short pause has a ping."""


class Sent(NamedTuple):
    """A received POST request."""

    path: str
    body: bytes


GRACE_S = 5.0
PINGS = [dialects.get(name).ping for name in dialects.names()]


def overheard(app: Any, sent: list[Sent], ping_sent: Callable[[], None]) -> Any:
    """Wraps the application: records POST requests, and reports pings."""

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()

        async def seen() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def told(message: Any) -> None:
            await send(message)
            if message.get("body") in PINGS:
                ping_sent()

        await app(scope, seen, told)
        if scope.get("method") == "POST":
            sent.append(Sent(scope["path"], bytes(body)))

    return listening


@contextlib.asynccontextmanager
async def served(
    script: Script,
    alias: str = "alias",
    names: Sequence[str] = (),
    port: int = 0,
    policy: GuardPolicy = AS_PLAYED,
    **settings: Any,
) -> AsyncIterator[Served]:
    backend, sent = Scripted(script, names), list[Sent]()
    gateway = Gateway([backend], {alias: "m"}, policy=policy)
    async with serving(gateway, sent, backend.ping_sent, port, **settings) as (server, url):
        yield Served(backend, server, url, sent)
    assert [step for step in backend.life if step != "refresh"] == ["start", "close"]
    assert backend.running == 0


@contextlib.asynccontextmanager
async def serving(
    gateway: Gateway,
    sent: list[Sent] | None = None,
    ping_sent: Callable[[], None] = lambda: None,
    port: int = 0,
    capture: CaptureConfig = NO_CAPTURE,
    keys: KeyRing | None = None,
    tracing: Any = None,
    records: RecordWriter | None = None,
    limits: UsageLimits | None = None,
    set_up: Callable[[App], None] = lambda app: None,
    **settings: Any,
) -> AsyncIterator[tuple[uvicorn.Server, str]]:
    """Serves a gateway, on a free port if none is given; POST requests are recorded in `sent`."""
    more: dict[str, Any] = {"keys": keys, "tracing": tracing, "records": records, "limits": limits}
    app: Any = App(gateway, ServerConfig(**settings), capture=capture, **more)
    set_up(app)
    if sent is not None:
        app = overheard(app, sent, ping_sent)
    # With IPPROTO_TCP asyncio sets TCP_NODELAY; otherwise every response waits 40 ms for an acknowledgement.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", port))
        server = Server(uvicorn.Config(app, log_config=None, lifespan="on", ws="none"))
        await server.open(listener)
        try:
            yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            await server.end()


class Server(uvicorn.Server):
    """uvicorn in the event loop of a test: it starts and ends at once, where its own loop waits 0.1 s several times."""

    async def open(self, listener: socket.socket) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[listener])
        await self.on_tick(0)  # makes the headers of every response

    async def end(self) -> None:
        """Lets running responses finish for some seconds, as uvicorn does, and cancels them then."""
        for each in self.servers:
            each.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            await eventually(lambda: not state.connections and not state.tasks, GRACE_S)
        except TimeoutError:
            for task in state.tasks:
                task.cancel()
        await self.lifespan.shutdown()


@contextlib.contextmanager
def in_thread(script: Script, port: int = 0, names: Sequence[str] = ()) -> Iterator[str]:
    """The URL of the application with a script, served in a thread while the test waits for other processes."""
    with run_in_thread(lambda: served(script, names=names, port=port)) as url:
        yield url


@contextlib.contextmanager
def run_in_thread(start: Callable[[], contextlib.AbstractAsyncContextManager[Any]]) -> Iterator[str]:
    """The URL of what `start` serves, in a thread with an event loop of its own."""
    loop, urls = asyncio.new_event_loop(), queue.Queue[str]()

    async def serve(stop: asyncio.Event) -> None:
        async with start() as s:
            urls.put(s.url)
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(stop),), daemon=True)
    thread.start()
    try:
        yield urls.get(timeout=DEADLINE_S)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(DEADLINE_S)
        loop.close()


async def eventually(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.005)


async def plain(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    yield Start("", "", 0)
    yield TextDelta("Hello")
    yield UsageUpdate(Usage(3, 1))
    yield Finish("stop")


async def silent_then_plain(backend: Scripted, request: Request) -> AsyncGenerator[AnyEvent, None]:
    await backend.go.wait()
    async for event in plain(backend, request):
        yield event
