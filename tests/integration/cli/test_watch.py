"""`dragoman watch`: the list on the screen, with a real gateway and its console, and lines without a screen."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from bench.terminal import Terminal
from textual.pilot import Pilot
from textual.widgets import Static
from textual.worker import WorkerFailed

from dragoman.cli.models.loaded import GatewayAddress
from dragoman.cli.watch import details
from dragoman.cli.watch.feed import FeedUpdate, TrafficFeed
from dragoman.cli.watch.plain import print_exchanges
from dragoman.cli.watch.screen import WatchApp
from dragoman.cli.watch.table import TrafficTable
from dragoman.config.keys import KeyConfig
from dragoman.console.api import CaptureState, ConsoleState, RowCall, TrafficRow
from dragoman.console.exchange.views import ExchangeView
from dragoman.core.errors import ConfigError, UpstreamError
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.gateway.gateway import Gateway
from dragoman.server.keys.ring import KeyRing
from support.console import served_console
from support.gateway import CHAT, DEADLINE_S, command, environment
from support.http_client import blocking_http_client
from support.scripted_backend import Scripted, body, plain, run_in_thread, serving
from support.source_path import SOURCES

ADMIN = "secret-of-admin"
STATE = ConsoleState(
    version="1", capture=CaptureState(mode="off"), has_keys=False, key="", has_records=True, models=[], apis=[]
)


class ScriptedFeed(TrafficFeed):
    """Updates that the test puts into a queue."""

    def __init__(self) -> None:
        super().__init__(GatewayAddress("http://127.0.0.1:9", "secret key"))
        self.queue: asyncio.Queue[FeedUpdate | None] = asyncio.Queue()
        """None ends the updates."""

    async def updates(self) -> AsyncGenerator[FeedUpdate, None]:
        yield FeedUpdate(state=STATE)
        while (update := await self.queue.get()) is not None:
            yield update


def row(number: int, state: Any = "done", **fields: Any) -> TrafficRow:
    return TrafficRow(id=f"req_{number}", began_s=time.time() - 9_000 + number, state=state, **fields)


def lines(pilot: Pilot[int]) -> list[str]:
    """The visible lines of the list."""
    table = pilot.app.screen.query_one(TrafficTable)
    return [text for y in range(table.size.height) if (text := table.render_line(y).text.strip())]


def head(pilot: Pilot[int]) -> str:
    return str(pilot.app.screen.query_one("#head", Static).content)


async def until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    """Waits for what the screen shows."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await pilot.pause(0.01)


@asynccontextmanager
async def watching(feed: TrafficFeed, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[int]]:
    app = WatchApp(feed)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield pilot


async def test_rows_stream_in_and_the_cursor_stays_on_its_exchange() -> None:
    feed = ScriptedFeed()
    async with watching(feed) as pilot:
        feed.queue.put_nowait(FeedUpdate([row(number, model=f"m{number}") for number in range(50)]))
        await until(pilot, lambda: len(lines(pilot)) == 21)
        assert "m49" in lines(pilot)[0]
        await pilot.press("down", "down")
        feed.queue.put_nowait(FeedUpdate([row(60, model="m60"), row(61, model="m61")]))
        await until(pilot, lambda: "52 exchanges" in head(pilot))
        table = pilot.app.screen.query_one(TrafficTable)
        assert table.cursor_row is not None
        assert table.cursor_row.model == "m47"
        await pilot.press("end")
        assert "m0" in lines(pilot)[-1]
        await pilot.press("home")
        assert "m61" in lines(pilot)[0]


async def test_pause_filter_failed_and_sort() -> None:
    feed = ScriptedFeed()
    async with watching(feed) as pilot:
        bad = row(2, "failed", agent="codex", error="UpstreamError: status 500")
        feed.queue.put_nowait(FeedUpdate([row(1, agent="claude-code"), bad, row(3, agent="claude-code")]))
        await until(pilot, lambda: len(lines(pilot)) == 3)
        await pilot.press("s")
        assert "codex" in lines(pilot)[0]
        await pilot.press("f")
        assert len(lines(pilot)) == 1
        await pilot.press("escape", "slash", *"claude")
        await until(pilot, lambda: len(lines(pilot)) == 2)
        assert "2 of 3 exchanges" in head(pilot)
        await pilot.press("enter", "space")
        feed.queue.put_nowait(FeedUpdate([row(4, agent="claude-code")]))
        await until(pilot, lambda: "PAUSED, 1 new" in head(pilot))
        assert len(lines(pilot)) == 2
        await pilot.press("space")
        assert len(lines(pilot)) == 3
        await pilot.press("slash", *"xyz", "enter")
        assert lines(pilot) == []
        assert "No exchange matches" in str(pilot.app.screen.query_one("#empty", Static).content)
        await pilot.press("escape")
        assert len(lines(pilot)) == 4


async def test_lost_connection_is_reported_and_running_rows_end() -> None:
    feed = ScriptedFeed()
    async with watching(feed) as pilot:
        feed.queue.put_nowait(FeedUpdate([row(1, "running", agent="codex"), row(2)]))
        await until(pilot, lambda: "1 running" in head(pilot))
        feed.queue.put_nowait(FeedUpdate(problem="no gateway answers at http://127.0.0.1:9"))
        await until(pilot, lambda: head(pilot).startswith("no gateway answers"))
        assert len(lines(pilot)) == 2


async def test_ten_thousand_rows_are_drawn_fast() -> None:
    feed = ScriptedFeed()
    async with watching(feed, (200, 50)) as pilot:
        calls = [RowCall(tool="t", outcome="valid")]
        many = [row(number, model="m", agent="claude-code", calls=calls) for number in range(10_000)]
        feed.queue.put_nowait(FeedUpdate(many))
        await until(pilot, lambda: "10,000 exchanges" in head(pilot))
        table = pilot.app.screen.query_one(TrafficTable)
        began_s = time.process_time()
        table.show_rows()
        for y in range(table.size.height):
            table.render_line(y)
        assert time.process_time() - began_s < 0.5


async def test_details_follow_a_running_exchange() -> None:
    feed = ScriptedFeed()
    async with watching(feed) as pilot:
        feed.queue.put_nowait(FeedUpdate([row(1, "running", model="m")]))
        await until(pilot, lambda: len(lines(pilot)) == 1)
        await pilot.press("enter")
        title = pilot.app.screen.query_one("#title", Static)
        assert str(title.content) == "req_1 · running"
        await pilot.press("escape")
        assert len(lines(pilot)) == 1


async def test_a_slow_read_of_details_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, go, reads = ScriptedFeed(), asyncio.Event(), list[str]()

    async def fetch(gateway: Any, path: str, *_: Any) -> Any:
        reads.append(path)
        await go.wait()
        return ExchangeView(id="req_1", row=row(1), is_captured=False, is_running=False)

    @asynccontextmanager
    async def opened(*_: Any) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(details, "fetch", fetch)
    monkeypatch.setattr(details, "open_gateway", opened)
    async with watching(feed) as pilot:
        feed.queue.put_nowait(FeedUpdate([row(1, model="m")]))
        await until(pilot, lambda: len(lines(pilot)) == 1)
        await pilot.press("enter")
        screen = pilot.app.screen
        assert isinstance(screen, details.DetailsScreen)
        await until(pilot, lambda: bool(reads))
        screen.read_again()
        go.set()
        await until(pilot, lambda: "is not captured" in str(screen.query_one("#facts", Static).content))
        screen.read_again()
        await pilot.pause()
    assert reads == ["/exchanges/req_1"]


async def test_a_bug_ends_the_screen_without_printing_the_key(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(ScriptedFeed):
        async def updates(self) -> AsyncGenerator[FeedUpdate, None]:
            raise ZeroDivisionError(self.address.url)
            yield

    app = WatchApp(Broken())
    with pytest.raises(WorkerFailed):
        async with app.run_test() as pilot:
            await pilot.pause()
    app._print_error_renderables()
    printed = capfd.readouterr().err
    assert "ZeroDivisionError" in printed
    assert "secret key" not in printed


async def calling(backend: Scripted, request: Any) -> AsyncGenerator[AnyEvent, None]:
    """A model that calls a tool, or fails."""
    if request.messages[-1].parts[0].text == "fail":
        raise UpstreamError("the server is on fire", status=500)
    yield Start("", "", 0)
    yield TextDelta("Let me look.")
    yield ToolCallStart(0, "call_1", "get_weather")
    yield ToolCallDelta(0, '{"city": "Paris"}')
    yield ToolCallEnd(0)
    yield Finish("tool_calls")


async def test_a_real_exchange_is_listed_with_its_details() -> None:
    keys = KeyRing({"boss": KeyConfig(secret=ADMIN, admin=True)})
    async with served_console(calling, keys=keys) as console:
        feed = TrafficFeed(GatewayAddress(console.url, ADMIN))
        async with watching(feed, (120, 30)) as pilot:
            await until(pilot, lambda: "capture off" in head(pilot))
            await pilot.press("c")
            await until(pilot, lambda: "capture memory" in head(pilot))
            await console.client.post(CHAT, json=body(), headers={"x-api-key": ADMIN})
            await until(pilot, lambda: bool(lines(pilot)) and "unchecked" in lines(pilot)[0])
            assert "n → scripted" in lines(pilot)[0]
            await pilot.press("enter")

            def text() -> str:
                return str(pilot.app.screen.query_one("#facts", Static).content)

            await until(pilot, lambda: "Let me look." in text())
            assert "key boss" in text()
            assert "(a tool that was not offered): unchecked" in text()
        with pytest.raises(ConfigError, match="needs an API key with admin = true: set DRAGOMAN_API_KEY"):
            await TrafficFeed(GatewayAddress(console.url, "another-secret")).check()


class Cable:
    """A connection to a server, which the test can cut."""

    def __init__(self, url: str) -> None:
        self.target = url.removeprefix("http://").rpartition(":")
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self.target[0], int(self.target[2]))
        self.writers += [writer, far_writer]
        await asyncio.gather(self.copy(reader, far_writer), self.copy(far_reader, writer))

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    def cut(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


async def test_lost_connection_is_made_again() -> None:
    async with served_console(plain) as console:
        cable = Cable(console.url)
        async with await asyncio.start_server(cable.connect, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            updates = TrafficFeed(GatewayAddress(f"http://127.0.0.1:{port}", "")).updates()
            first = await anext(updates)
            assert (first.state is not None, first.rows) == (True, [])
            cable.cut()
            assert "lost" in (await anext(updates)).problem
            assert (await anext(updates)).state is not None
            await console.client.post(CHAT, json=body())
            while (update := await anext(updates)).rows[0].state == "running":
                pass
            assert update.rows[0].state == "done"
            await updates.aclose()
            cable.cut()


async def test_a_gateway_without_a_console_is_an_error() -> None:

    async with serving(Gateway([Scripted(plain)])) as (_, url):
        with pytest.raises(ConfigError, match=r"has no console: console\.enabled = true turns it on"):
            await TrafficFeed(GatewayAddress(url, "")).check()


# In processes of their own


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with run_in_thread(lambda: served_console(calling)) as address:
        yield address


def own_environment(home: Path, **variables: str) -> dict[str, str]:
    return {**environment(home), "DRAGOMAN_SERVER_PORT": "9", "PYTHONPATH": SOURCES, **variables}


def post(url: str, text: str = "hello") -> None:
    with blocking_http_client(url) as client:
        client.post(CHAT, json={"model": "m", "messages": [{"role": "user", "content": text}]})


def test_screen_of_a_terminal(url: str, tmp_path: Path) -> None:
    environ = own_environment(tmp_path, NO_COLOR="1")
    with Terminal(command("watch", "--gateway", url), environ, tmp_path, 80, 24) as terminal:
        terminal.wait_for("capture off")
        post(url)
        terminal.wait_for("m → scripted")
        post(url, "fail")
        screen = terminal.wait_for("✗ Upstream")
        assert "TIME" in screen.splitlines()[1]
        assert "q Quit" in screen.splitlines()[-1]
        terminal.type("f")
        terminal.wait_for("failed only")
        terminal.type("\r")
        terminal.wait_for("status 502")
        terminal.type("\x1b")
        terminal.wait_for("failed only")
        terminal.type("q")
        assert terminal.wait_end() == 0


def test_without_a_terminal_lines_are_printed(url: str, tmp_path: Path) -> None:
    args, environ = ("watch", "--gateway", url, "--failed"), own_environment(tmp_path)
    pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command(*args), env=environ, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split()[:3] == ["TIME", "(UTC)", "ID"]
        assert process.stderr.readline() == f"dragoman: watching the gateway at {url}\n"
        post(url)
        post(url, "fail")
        assert process.stdout.readline().split()[-2:] == ["scripted", "UpstreamError"]
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
        assert "Traceback" not in process.stderr.read()


async def test_lines_of_json_are_printed_once_for_each_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    feed = ScriptedFeed()
    bad = row(3, "failed", status=502, error="UpstreamError: \x9b31m", agent="codex")
    for update in ([row(1, "failed")], [row(2, "running"), bad], [row(2), bad], [row(4, "failed", agent="claude")]):
        feed.queue.put_nowait(FeedUpdate(update))
    feed.queue.put_nowait(None)
    await print_exchanges(feed, "codex", only_failed=True, is_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    assert (json.loads(line)["status"], line.isascii()) == (502, True)
