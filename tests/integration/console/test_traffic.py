"""The list of exchanges: those that run appear in the stream, end, and are found again in the list."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from dragoman.config.server import CaptureConfig
from dragoman.core.errors import UpstreamError
from dragoman.core.messages import Request
from dragoman.records.config import RecordsConfig
from support.console import ServedConsole, served_console
from support.gateway import CHAT
from support.scripted_backend import Scripted, body, plain


async def ended_row(console: ServedConsole, path: str = CHAT) -> dict[str, Any]:
    """The row of an exchange, as the stream has it at its end."""
    stream = console.events("/traffic/stream")
    assert await anext(stream) == ("rows", [])
    await console.client.post(path, json=body())
    async for _, rows in stream:
        if ended := [row for row in rows if row["state"] != "running"]:
            await stream.aclose()
            (row,) = ended
            return dict(row)
    raise AssertionError


async def test_an_exchange_is_in_the_stream_and_in_the_list_without_its_text() -> None:
    async with served_console(plain) as console:
        row = await ended_row(console)
        assert (row["state"], row["dialect"], row["model"], row["is_captured"]) == ("done", "openai_chat", "n", False)
        assert row["upstream"] == "scripted"
        listed = (await console.get("/traffic")).json()
        assert listed == {"rows": [row], "has_more": False}
        assert "secret words" not in str(row)
        wrong = (await console.get("/traffic?limit=x")).json()["error"]["message"]
        assert wrong == "expected a number from 1 to 1000, got 'x' - at limit"


async def test_a_failed_exchange_has_its_error() -> None:
    async def failing(*_: object) -> Any:
        raise UpstreamError("the server is on fire", status=500)
        yield

    async with served_console(failing) as console:
        row = await ended_row(console)
        assert (row["state"], row["status"]) == ("failed", 502)
        assert row["error"] == "UpstreamError: status 500"


async def test_captures_in_memory_end_with_the_switch_and_those_on_disk_are_found(tmp_path: Path) -> None:
    async with served_console(plain) as console:
        await console.capture()
        assert (await ended_row(console))["is_captured"] is True
        await console.capture(is_on=False)
        assert (await ended_row(console))["is_captured"] is False
    async with served_console(plain, capture=CaptureConfig(dir=str(tmp_path))) as console:
        assert (await console.get("/state")).json()["capture"] == {"mode": "disk", "filter": "all"}
        assert (await ended_row(console))["is_captured"] is True


async def test_list_is_empty_while_the_tables_of_the_records_are_created(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    async with served_console(plain, records=RecordsConfig(url=f"sqlite:///{path}")) as console:
        assert (await console.get("/traffic")).json() == {"rows": [], "has_more": False}


async def test_exchange_that_ends_after_the_switch_is_not_captured() -> None:
    held, started = asyncio.Event(), asyncio.Event()

    async def waits(backend: Scripted, request: Request) -> Any:
        started.set()
        await held.wait()
        async for event in plain(backend, request):
            yield event

    async with served_console(waits) as console:
        await console.capture()
        asking = asyncio.ensure_future(console.client.post(CHAT, json=body()))
        await started.wait()
        (id,) = console.app.feed.running if console.app.feed else ()
        await console.capture(is_on=False)
        held.set()
        await asking
        await console.capture()
        assert (await console.get(f"/exchanges/{id}")).status_code in (200, 404)
        assert "secret words" not in (await console.get(f"/exchanges/{id}")).text
