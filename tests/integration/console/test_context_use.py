"""The context of exchanges that a real gateway has captured: counts, the turns of a session, trimming.

client ─HTTP→ gateway, which captures ─HTTP→ a server scripted by the test
"""

import json
import shutil
from pathlib import Path
from typing import Any

from dragoman.console.context_use.captured import read_request
from dragoman.console.context_use.context import BackendFacts, context_use
from dragoman.console.context_use.turns import MAX_READ, SessionTurns, exchange_id
from dragoman.console.context_use.views import ContextUse
from dragoman.server.capture.files import Files
from dragoman.server.capture.load import LoadedCapture, load
from support.capturing import TOOLS, folders, keeping, kept
from support.fake_upstream import whole
from support.gateway import CHAT
from support.http_client import http_client

REPORTED = 2000
"""Input tokens that the server reports."""
CACHED = 1500


class Folder:
    """The captures in a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.reads: list[str] = []

    def names(self) -> list[str]:
        return [folder.name for folder in folders(self.place)]

    def read(self, name: str) -> Files | None:
        self.reads.append(name)
        return load(self.place / name)[1]


def answer(**usage: object) -> str:
    message = {"role": "assistant", "content": "ok"}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})


REPORTING = whole(
    200, answer(prompt_tokens=REPORTED, completion_tokens=1, prompt_tokens_details={"cached_tokens": CACHED})
)


def conversation(turns: int, system: str = "You are an agent.", first: str = "Read the plan") -> list[dict[str, Any]]:
    """Messages of a conversation with this number of turns of the user."""
    messages = [{"role": "system", "content": system * 20}]
    for number in range(turns):
        messages += [{"role": "assistant", "content": f"answer {number}"}] if number else []
        messages.append({"role": "user", "content": f"{first} {number}"})
    return messages


async def send(url: str, messages: list[dict[str, Any]], **headers: str) -> str:
    """Sends a request, and returns its id."""
    async with http_client(url) as client:
        body = {"model": "m", "messages": messages, "tools": TOOLS}
        response = await client.post(CHAT, json=body, headers={"user-agent": "an-agent/1", **headers})
    assert response.status_code == 200
    return str(response.headers["x-request-id"])


def use_of(id: str, captures: Folder, sessions: SessionTurns | None = None, **more: Any) -> ContextUse:
    name = next(name for name in captures.names() if exchange_id(name) == id)
    captured = read_request(LoadedCapture(name, load(captures.place / name)[1]))
    assert captured is not None
    return context_use(id, captured, captures, sessions or SessionTurns(), **more)


async def test_parts_add_up_to_what_the_server_reported(tmp_path: Path) -> None:
    async with keeping(tmp_path / "kept", REPORTING) as url:
        id = await send(url, conversation(2))
        await kept(tmp_path / "kept")
    use = use_of(id, Folder(tmp_path / "kept"), facts=BackendFacts(32_768, trim_setting="upstreams.far.prompt_trim"))
    assert (use.counting, use.tokens, use.usage.cached_tokens) == ("reported", REPORTED, CACHED)
    assert sum(part.tokens for part in use.parts) == sum(group.tokens for group in use.groups) == REPORTED
    assert sum(part.cached_tokens or 0 for part in use.parts) == CACHED
    assert use.parts[0].name == "tool get_weather"
    assert use.largest[0].tokens == max(part.tokens for part in use.parts if part.kind != "frame")
    assert "far reported 2,000 input tokens" in use.explanation
    assert [(turn.number, turn.is_current) for turn in use.turns] == [(1, True)]
    assert use.turns_by == ""
    assert [trim.level for trim in use.trims] == ["off", "tools", "aggressive", "max"]
    exact = use_of(id, Folder(tmp_path / "kept"), exact=1000)
    assert (exact.counting, sum(part.tokens for part in exact.parts)) == ("exact", 1000)


async def test_trimmed_request_is_counted_as_it_was_sent(tmp_path: Path) -> None:
    async with keeping(tmp_path / "kept", whole(200, answer()), prompt_trim="max") as url:
        long = [{"role": "system", "content": "You are an agent. Rules follow.\n\n" + "You like rules. " * 200}]
        id = await send(url, [*long, *conversation(1)[1:]])
        await kept(tmp_path / "kept")
    use = use_of(id, Folder(tmp_path / "kept"))
    off, *_, most = use.trims
    assert (most.level, most.is_used, most.is_applied, off.is_applied) == ("max", True, True, False)
    assert use.counting == "estimated"
    assert use.usage.is_estimated
    assert use.tokens == most.tokens_after < off.tokens_after / 2


async def test_turns_of_a_session_have_growth_and_the_part_that_changed(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    async with keeping(place, REPORTING) as url:
        first = await send(url, conversation(1), **{"x-session-id": "s1"})
        await send(url, conversation(1), **{"x-session-id": "s2"})
        second = await send(url, conversation(2), **{"x-session-id": "s1"})
        third = await send(url, conversation(3, system="You were an agent."), **{"x-session-id": "s1"})
        await kept(place, 4)
    captures, sessions = Folder(place), SessionTurns()
    use = use_of(second, captures, sessions)
    assert (use.session, use.turns_by, use.has_all_turns) == ("s1", "session", True)
    assert [turn.id for turn in use.turns] == [first, second, third]
    assert [turn.is_current for turn in use.turns] == [False, True, False]
    assert [turn.messages_added for turn in use.turns] == [2, 2, 2]
    assert [turn.changed for turn in use.turns] == ["", "", "a part of an earlier turn"]
    assert all(turn.usage.cached_tokens == CACHED for turn in use.turns)
    assert use_of(third, captures, sessions).turns[2].changed == "system prompt"
    assert len(captures.reads) == 3  # each was read once, and the one on the page was known


async def test_conversation_without_session_is_what_continues_it(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    async with keeping(place, whole(200, answer())) as url:
        first = await send(url, conversation(1))
        await send(url, conversation(1, first="Something else"))
        again = await send(url, conversation(1))
        second = await send(url, conversation(2))
        await kept(place, 4)
    use = use_of(second, Folder(place))
    assert use.turns_by == "conversation"
    assert [turn.id for turn in use.turns] == [again, second]
    assert use.turns[1].growth > 0
    assert [turn.id for turn in use_of(first, Folder(place)).turns] == [first, second]


async def test_damaged_and_deleted_captures_are_left_out_and_reading_is_bounded(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    async with keeping(place, whole(200, answer())) as url:
        first = await send(url, conversation(1), **{"x-session-id": "s"})
        second = await send(url, conversation(2), **{"x-session-id": "s"})
        await kept(place, 2)
    damaged, whole_one = folders(place)
    (damaged / "values.json").write_text("{")
    (damaged / "1/values.json").write_text('{"is": "Text", "text": 1}')
    sessions = SessionTurns()
    assert [turn.id for turn in use_of(second, Folder(place), sessions).turns] == [second]
    shutil.rmtree(damaged)
    assert first not in [turn.id for turn in use_of(second, Folder(place), sessions).turns]
    for number in range(MAX_READ + 1):
        (place / f"20200101T000000.{number:03}Z-req_{number}").symlink_to(whole_one)
    assert not use_of(second, Folder(place), SessionTurns()).has_all_turns
    slow = iter(range(0, 10_000, 10))
    assert not use_of(second, Folder(place), SessionTurns(lambda: float(next(slow)))).has_all_turns
