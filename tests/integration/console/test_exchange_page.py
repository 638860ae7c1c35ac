"""The exchange page: views of exchanges that ended and that run, with captures on and off."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.server import CaptureConfig
from support.capturing import TOOLS, says
from support.console import served_console
from support.fake_upstream import HEAD, Server, ask, piece
from support.gateway import CHAT, MESSAGES
from support.scripted_backend import body, plain
from support.served_exchanges import console_of, text_of, view_of

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


async def test_a_leaked_call_is_explained_by_the_page() -> None:
    async with console_of(says(CALL[:30], CALL[30:]), tool_mode="native") as (console, _):
        answer = await ask(console.url, CHAT, True, tools=TOOLS)
        view = await view_of(console, answer.headers["x-request-id"])
    assert (view["is_captured"], view["is_running"]) == (True, False)
    assert view["row"]["upstream"] == "far"
    assert text_of(view, "model", "call:0").count("get_weather") == 1
    note = next(note for note in view["notes"] if note["code"] == "leaked_call_recovered")
    assert 'tool_mode = "parse"' in note["remedy"]
    assert note["settings"] == ["upstreams.far.tool_mode"]
    assert "advice" not in {note["code"] for note in view["notes"]}  # the diagnosis has it
    model = next(lane for lane in view["lanes"] if lane["name"] == "model")
    assert model["summary"] == "the server left 1 call in its text"
    assert view["sent_calls"][0]["backend"] == "far"


async def test_nothing_is_kept_while_captures_are_off() -> None:
    async with served_console(plain) as console:
        stream = console.events("/traffic/stream")
        await anext(stream)
        answer = await console.client.post(CHAT, json=body())
        id = answer.headers["x-request-id"]
        view = await view_of(console, id)
        assert (view["is_captured"], view["lanes"], view["notes"]) == (False, [], [])
        assert "hi" not in json.dumps({**view, "id": "", "row": {}})
        unknown = await console.get("/exchanges/req_0")
        await stream.aclose()
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")


async def test_capture_on_disk_is_shown_without_a_record(tmp_path: Path) -> None:
    async with served_console(plain, capture=CaptureConfig(dir=str(tmp_path))) as console:
        answer = await console.client.post(MESSAGES, json=body() | {"max_tokens": 9})
        id = answer.headers["x-request-id"]
        await view_of(console, id)
    async with served_console(plain, capture=CaptureConfig(dir=str(tmp_path))) as console:
        view = await view_of(console, id)
    assert (view["row"]["id"], view["row"]["dialect"], view["row"]["is_captured"]) == (id, "anthropic_messages", True)
    assert view["row"]["began_s"] > 0


async def test_the_previous_request_of_the_conversation_is_compared() -> None:
    first = [{"role": "system", "content": "It is 2026-11-27."}, {"role": "user", "content": "How is it in Mallorca?"}]
    turns = [*first, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And in Paris?"}]
    other = [{"role": "user", "content": "An unrelated question"}]
    changed = [
        {"role": "system", "content": "It is 2026-11-28."},
        *turns[1:],
        {"role": "assistant", "content": "Rain."},
    ]
    async with console_of(says("hi")) as (console, _):
        ids = []
        for messages in (first, other, turns, changed):
            asked = {"model": "m", "messages": messages}
            ids.append((await console.client.post(CHAT, json=asked)).headers["x-request-id"])
        alone, _, appended, broken = [await view_of(console, id) for id in ids]
    assert (alone["previous_id"], alone["cache_note"]) == ("", "")
    assert (appended["previous_id"], appended["cache_note"]) == (ids[0], "")
    changes = [block["change"] for block in appended["lanes"][0]["blocks"]]
    assert changes == ["same", "same", "same", "added", "added", ""]
    assert broken["previous_id"] == ids[2]
    assert broken["cache_note"].startswith("the system prompt changed at character 15: a date or time")
    assert "2026-11-27" in broken["cache_note"]


async def test_view_of_a_running_exchange_follows_it() -> None:
    async def play(far: Server, writer: Any) -> None:
        writer.write(HEAD + piece({"role": "assistant", "content": "One, "}))
        await writer.drain()
        await far.go.wait()
        await says("two.")(far, _Rest(writer))

    async with console_of(play, tool_mode="parse", call_format="hermes") as (console, far):
        asking = asyncio.ensure_future(ask(console.url, CHAT, True))
        stream = console.events("/traffic/stream")
        async for _, rows in stream:
            if rows:
                break
        id = rows[0]["id"]
        seen: dict[str, Any] = {}
        events = []
        async for name, value in console.events(f"/exchanges/{id}/stream"):
            events.append(name)
            if name == "done":
                break
            lanes = {lane["name"]: lane for lane in [*seen.get("lanes", ()), *value.get("lanes", ())]}
            seen = {**seen, **value, "lanes": list(lanes.values())}
            if "One, " in text_of(seen, "model", "") and not far.go.is_set():
                assert seen["is_running"] is True
                far.go.set()
        answer = await asking
        assert events[-1] == "done"
        final = await view_of(console, answer.headers["x-request-id"])
        await stream.aclose()
    assert "One, two." in text_of(seen, "reply")
    assert seen["lanes"] == final["lanes"]
    assert seen["is_running"] is False


async def test_view_of_a_large_running_exchange_has_no_lanes() -> None:
    async def play(far: Server, writer: Any) -> None:
        await far.go.wait()
        await says("two.")(far, writer)

    async with console_of(play) as (console, far):
        asked = {"model": "m", "messages": [{"role": "user", "content": "word " * 300_000}]}
        asking = asyncio.ensure_future(console.client.post(CHAT, json=asked))
        stream = console.events("/traffic/stream")
        async for _, rows in stream:
            if rows:
                break
        view = await view_of(console, rows[0]["id"])
        far.go.set()
        await asking
        ended = await view_of(console, rows[0]["id"])
        await stream.aclose()
    assert (view["is_running"], view["is_captured"], view["lanes"]) == (True, True, [])
    assert [note["code"] for note in view["notes"]] == ["left_out"]
    assert len(ended["lanes"]) == 4


class _Rest:
    """Writes what follows the head of a response."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        self._writer.write(data.removeprefix(HEAD))

    async def drain(self) -> None:
        await self._writer.drain()


@pytest.mark.parametrize("path", ["/exchanges/req_0/stream", "/exchanges/req_0"])
async def test_unknown_exchange_is_an_error(path: str) -> None:
    async with served_console(plain) as console:
        response = await console.get(path)
    assert response.status_code == 404


async def test_large_exchange_is_bounded_and_complete_elsewhere() -> None:
    """Its lanes are built in a process of their own."""
    text = f"first {'word ' * 300_000}last"
    async with console_of(says("It is sunny."), tool_mode="parse", call_format="hermes") as (console, _):
        ids = []
        for messages in ([text], [text, "and now?"]):
            asked = {"model": "m", "messages": [{"role": "user", "content": each} for each in messages]}
            ids.append((await console.client.post(CHAT, json=asked)).headers["x-request-id"])
        view = await view_of(console, ids[1])
        whole = await console.get(f"/exchanges/{ids[1]}/body")
    assert view["previous_id"] == ids[0]
    assert [block["change"] for block in view["lanes"][0]["blocks"]] == ["same", "same", "added", ""]
    sent = text_of(view, "client", "message:0")
    assert sent.startswith("first word")
    assert sent.endswith("word last")
    assert len(sent) < 110_000
    assert "characters are left out" in json.dumps(view["lanes"][0])
    assert whole.json()["messages"][0]["content"] == text
    assert text_of(view, "model", "text:0") == "It is sunny."
