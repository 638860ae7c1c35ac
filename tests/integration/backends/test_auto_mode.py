"""Mode `auto` under `serve`: a model is measured behind its first answer, and what was found is remembered."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import dialects
from dragoman.backends.http.auto_mode import LEAK_WARNING_CODE, RECHECK_INTERVAL_S, AutoMode
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig, PerModel
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_modes import ModelModes
from dragoman.backends.probe.cache import store
from dragoman.backends.probe.context import WEATHER
from dragoman.backends.probe.report import Recommendation
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Finish, Notice, ToolCallStart
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Request, Text
from support.fake_upstream import Server, server
from support.probe_upstream import CHAT, calls, leaks, leaks_mistral
from support.scripted_backend import eventually
from support.stub_servers import NOTHING_HERE, Answer, Says, chat, models, odd

pytestmark = pytest.mark.asyncio
ASKED = Request("qwen2.5-7b", (Message("user", (Text("A question of the user's own."),)),))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where findings are kept."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    return tmp_path / "probes"


def says(model: Any, **entry: Any) -> Says:
    def answer(path: str, asked: dict[str, Any]) -> Answer:
        if path == "/v1/models":
            return models("qwen2.5-7b", **entry)
        told: Answer = model(asked) if path == CHAT else NOTHING_HERE
        return told

    return answer


@contextlib.asynccontextmanager
async def started(url: str, **settings: Any) -> AsyncIterator[HttpBackend]:
    """A backend as `serve` makes it."""
    backend = HttpBackend("far", HttpConfig(url=f"{url}/v1", **settings), {}, may_probe=True)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


async def answered(backend: HttpBackend) -> list[AnyEvent]:
    return [event async for event in backend.generate(ASKED, ExchangeContext("1", 0, random_id))]


def questions(far: Server) -> list[dict[str, Any]]:
    """What its model was asked beside the user's own question."""
    posted = [json.loads(body) for line, _, body in far.asked if line.startswith(f"POST {CHAT} ")]
    return [body for body in posted if "user's own" not in str(body["messages"])]


async def test_a_model_is_measured_behind_its_first_answer_and_not_before(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with odd(says(leaks_mistral)) as far, started(far.url) as backend:
        assert [line for line, *_ in far.asked] == ["GET /v1/models HTTP/1.1"]
        events = await answered(backend)
        assert isinstance(events[-1], Finish)
        assert backend.modes.get("qwen2.5-7b").mode == "native"
        await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")
        assert backend.modes.get("qwen2.5-7b").format == "mistral"
        assert questions(far)
    assert "qwen2.5-7b is asked in mode parse, format mistral: a call was left in the text" in caplog.text
    (file,) = folder.iterdir()
    kept = json.loads(file.read_text())
    assert (kept["choice"]["mode"], kept["model"]) == ("parse", "qwen2.5-7b")


async def test_what_was_found_is_used_from_the_start_and_not_asked_again() -> None:
    async with odd(says(leaks_mistral)) as far:
        async with started(far.url) as backend:
            await answered(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")
        far.asked.clear()
        async with started(far.url) as backend:
            await answered(backend)
            assert backend.modes.get("qwen2.5-7b").mode == "parse"
            assert backend.modes.get("qwen2.5-7b").why.startswith("as found before: ")
            await eventually(lambda: any("/info" in line for line, *_ in far.asked))
        assert questions(far) == []


async def test_what_was_found_is_used_where_nothing_may_be_measured() -> None:
    async with odd(says(leaks_mistral)) as far:
        config = HttpConfig(url=f"{far.url}/v1", probe=False)
        store(config, "qwen2.5-7b", "", "", Recommendation("parse", "as a test has it", "mistral"))
        backend = HttpBackend("far", config, {}, may_recall=True)
        await backend.start()
        assert backend.describe("qwen2.5-7b")["model_mode"]["mode"] == "parse"
        await answered(backend)
        assert backend.modes.get("qwen2.5-7b").mode == "parse"
        assert questions(far) == []
        await backend.close()


async def test_a_server_with_a_key_is_measured_where_its_settings_ask_for_it() -> None:
    async with odd(says(leaks)) as far, started(far.url, key="paid", probe=True) as backend:
        await answered(backend)
        await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")


async def test_tokens_are_counted_as_the_model_was_found_to_be_asked() -> None:
    def counts(path: str, asked: dict[str, Any]) -> Answer:
        return Answer('{"input_tokens": 7}') if path.endswith("/count_tokens") else models("qwen2.5-7b")

    async with odd(counts) as far:
        config = HttpConfig(url=f"{far.url}/v1", api="anthropic_messages")
        store(config, "qwen2.5-7b", "", "", Recommendation("inject", "as a test has it", "hermes"))
        async with started(far.url, api="anthropic_messages") as backend:
            assert await backend.count_tokens(msgspec.structs.replace(ASKED, tools=(WEATHER,))) == 7
        counted = json.loads(far.asked[-1][2])
    assert "tools" not in counted
    assert "<tool_call>" in str(counted["system"])


async def test_what_was_found_counts_for_a_trusted_server_too() -> None:
    asked = msgspec.structs.replace(ASKED, dialect="openai_chat")
    context = ExchangeContext("1", 0, random_id)
    async with odd(says(leaks_mistral)) as far:
        async with started(far.url, trusted=True) as backend:
            assert backend.passthrough(asked, b"{}", asked.model, context) is not None
            await answered(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")
        async with started(far.url, trusted=True) as backend:
            assert backend.passthrough(asked, b"{}", asked.model, context) is None


async def test_what_was_found_by_other_rules_is_forgotten(folder: Path) -> None:
    async with odd(says(calls)) as far:
        async with started(far.url) as backend:
            await answered(backend)
            await eventually(lambda: list(folder.glob("*.json")))
        (file,) = folder.iterdir()
        kept = json.loads(file.read_text())
        kept["choice"]["mode"] = "inject"
        for rules, mode in ((kept["rules"], "inject"), (kept["rules"] - 1, "native")):
            file.write_text(json.dumps({**kept, "rules": rules}))
            async with started(far.url) as backend:
                await answered(backend)
                assert backend.modes.get("qwen2.5-7b").mode == mode


async def test_another_model_behind_the_name_is_measured_again() -> None:
    entry, model = {"max_model_len": 1}, [leaks_mistral]

    def changing(path: str, asked: dict[str, Any]) -> Answer:
        return says(model[0], **entry)(path, asked)

    async with odd(changing) as far:
        async with started(far.url) as backend:
            await answered(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")
        entry["max_model_len"], model[0] = 2, calls
        async with started(far.url) as backend:
            await answered(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "native")
            assert backend.modes.get("qwen2.5-7b").why == "its own tool calls come, whole and streamed"


@pytest.mark.parametrize(
    "settings",
    [{"mode": "native"}, {"probe": False}, {"key": "paid"}, {"per_model": {"qwen*": PerModel(mode="inject")}}],
    ids=str,
)
async def test_nothing_is_asked_where_the_settings_say_so(settings: dict[str, Any], folder: Path) -> None:
    async with odd(says(leaks)) as far, started(far.url, **settings) as backend:
        await answered(backend)
        await answered(backend)
        assert questions(far) == []
    assert not folder.exists()


async def test_a_server_that_can_be_trusted_is_not_asked() -> None:
    listed = says(calls)

    def dragoman(path: str, asked: dict[str, Any]) -> Answer:
        return listed(path, asked) if path != "/" else Answer('{"name": "dragoman"}')

    async with odd(dragoman) as far, started(far.url) as backend:
        await answered(backend)
        await eventually(lambda: "can be trusted" in backend.modes.get("qwen2.5-7b").why)
        assert questions(far) == []


async def test_what_is_known_of_a_kind_that_is_recognised_counts() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning_content": "Two and two."}
    talk = [
        {"role": "user", "content": "2 + 2?"},
        thought,
        {"role": "user", "content": "Sure? A question of the user's own."},
    ]

    async with odd(says(calls, owned_by="vllm")) as far, started(far.url) as backend:
        asked = dialects.get("openai_chat").read_request(json.dumps({"model": "qwen2.5-7b", "messages": talk}))
        for field in ("reasoning_content", "reasoning"):
            far.asked.clear()
            assert [event async for event in backend.generate(asked, ExchangeContext("1", 0, random_id))]
            sent = next(json.loads(body) for line, _, body in far.asked if line.startswith("POST"))
            assert field in sent["messages"][1]
            await eventually(lambda: backend.modes.get("qwen2.5-7b").why.startswith("its own tool calls come"))


async def test_a_server_that_cannot_be_measured_is_asked_as_before(caplog: pytest.LogCaptureFixture) -> None:
    def model(asked: dict[str, Any]) -> Answer:
        return chat(asked, "yes") if "user's own" in str(asked["messages"]) else Answer("{}", 400)

    async with odd(says(model)) as far, started(far.url) as backend:
        await answered(backend)
        await eventually(lambda: "could not be measured, and is asked as before" in caplog.text)
        assert backend.modes.get("qwen2.5-7b").mode == "native"


async def test_closing_gives_up_what_is_being_found_out() -> None:
    hangs = asyncio.Event()

    async def play(server: Server, writer: Any) -> None:
        line, _, body = server.asked[-1]
        if b"user's own" in body or line.startswith("GET"):
            said = says(calls)(line.split(" ")[1], json.loads(body) if body else {}).body.encode()
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(said) + said)
        else:
            hangs.set()
            await server.left.wait()

    async with server(play) as far:
        async with started(far.url) as backend:
            await answered(backend)
            await hangs.wait()
        assert not [task for task in asyncio.all_tasks() if "_settled" in str(task.get_coro())]


LEFT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_it_is_looked_again_after_a_while(folder: Path) -> None:
    clock = Clock()
    async with odd(says(calls)) as far:
        config = HttpConfig(url=far.url)
        connection, ways = UpstreamConnection("far", config, {}, versioned=True, key=""), ModelModes("far", config)
        await connection.start()
        auto = AutoMode("far", config, connection, ways, lambda kind: None, clock)
        looked = []
        for after_s in (0.0, 1.0, RECHECK_INTERVAL_S - 1, 2.0):
            clock.now += after_s
            far.asked.clear()
            auto.load_cached("qwen2.5-7b")
            auto.observe("qwen2.5-7b", Finish("stop"))
            await auto.wait_idle()
            looked.append((len(far.asked) > 0, len(questions(far)) > 0))
        await auto.close()
        await connection.close()
    assert looked == [(True, True), (False, False), (True, False), (False, False)]


@pytest.mark.parametrize("known", [True, False])
async def test_a_call_that_leaked_speaks_for_itself(known: bool, folder: Path) -> None:
    async with odd(says(calls)) as far:
        config = HttpConfig(url=far.url)
        connection, ways = UpstreamConnection("far", config, {}, versioned=True, key=""), ModelModes("far", config)
        await connection.start()
        auto = AutoMode("far", config, connection, ways, lambda kind: None)
        auto.load_cached("qwen2.5-7b")
        if known:
            auto.observe("qwen2.5-7b", Finish("stop"))
            await auto.wait_idle()
            assert ways.get("qwen2.5-7b").mode == "native"
        auto.observe("qwen2.5-7b", Notice(LEAK_WARNING_CODE, ""))
        await auto.close()
        await connection.close()
    assert (ways.get("qwen2.5-7b").mode, ways.get("qwen2.5-7b").why) == ("parse", "it left a call in the text")
    kept = [json.loads(file.read_text())["choice"]["mode"] for file in folder.glob("*")]
    assert kept == (["parse"] if known else [])


async def test_a_real_leak_has_the_next_answers_read_whatever_was_measured(folder: Path) -> None:
    """Short questions are answered by its API, the user's own in the text."""

    def model(asked: dict[str, Any]) -> Answer:
        users = "user's own" in str(asked["messages"])
        return chat(asked, LEFT) if users else calls(asked)

    asked = msgspec.structs.replace(ASKED, tools=(WEATHER,))
    async with odd(says(model)) as far, started(far.url) as backend:
        for mode in ("native", "parse"):
            assert backend.modes.get("qwen2.5-7b").mode == mode
            events = [event async for event in backend.generate(asked, ExchangeContext("1", 0, random_id))]
            assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["get_weather"]
            await eventually(lambda: list(folder.glob("*.json")))
        assert backend.modes.get("qwen2.5-7b").why == "it left a call in the text"


@pytest.mark.parametrize("kept", ["", "{}", "nonsense", '{"choice": {"mode": "shout", "why": ""}}'])
async def test_findings_that_make_no_sense_are_none(kept: str, folder: Path) -> None:
    async with odd(says(leaks_mistral)) as far:
        async with started(far.url) as backend:
            await answered(backend)
            await eventually(lambda: list(folder.glob("*.json")))
        (file,) = folder.iterdir()
        file.write_text(kept)
        async with started(far.url) as backend:
            await answered(backend)
            assert backend.modes.get("qwen2.5-7b").mode == "native"
            await eventually(lambda: backend.modes.get("qwen2.5-7b").mode == "parse")
    assert json.loads(file.read_text())["choice"]["mode"] == "parse"
