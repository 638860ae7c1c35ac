"""Tool mode `auto` under `serve`: a model is probed after its first response, and the result is cached."""

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
from dragoman.backends.http.auto_mode import LEAK_WARNING_CODE, LOOK_INTERVAL_S, RECHECK_INTERVAL_S, AutoMode
from dragoman.backends.http.backend import HttpBackend
from dragoman.backends.http.config import HttpConfig, ModelOverride
from dragoman.backends.http.connection import UpstreamConnection
from dragoman.backends.http.model_modes import ModelModes
from dragoman.backends.probe.cache import store
from dragoman.backends.probe.context import WEATHER
from dragoman.backends.probe.report import Recommendation
from dragoman.backends.probe.shared_results import CLAIMS, PROBES
from dragoman.backends.shared_state import SharedState
from dragoman.core.backend import ExchangeContext
from dragoman.core.events import AnyEvent, Finish, Notice, ToolCallStart
from dragoman.core.identifiers import random_id
from dragoman.core.messages import Message, Request, Text
from dragoman.state.memory_store import MemoryStateStore
from support.events import all_events
from support.fake_upstream import Server, server
from support.probe_upstream import CHAT, calls, leaks, leaks_mistral
from support.scripted_backend import eventually
from support.stub_servers import NOTHING_HERE, Answer, Says, chat, models, odd

pytestmark = pytest.mark.asyncio
REQUEST = Request("qwen2.5-7b", (Message("user", (Text("A question of the user's own."),)),))


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which probe results are cached."""
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    return tmp_path / "probes"


def answers_with(model: Any, **entry: Any) -> Says:
    def answer(path: str, asked: dict[str, Any]) -> Answer:
        if path == "/v1/models":
            return models("qwen2.5-7b", **entry)
        told: Answer = model(asked) if path == CHAT else NOTHING_HERE
        return told

    return answer


@contextlib.asynccontextmanager
async def started_backend(url: str, **settings: Any) -> AsyncIterator[HttpBackend]:
    """A backend as `serve` builds it."""
    backend = HttpBackend("far", HttpConfig(url=f"{url}/v1", **settings), {}, may_probe=True)
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


async def generate_events(backend: HttpBackend) -> list[AnyEvent]:
    return await all_events(backend.generate(REQUEST, ExchangeContext("1", 0, random_id)))


def probe_requests(far: Server) -> list[dict[str, Any]]:
    """The request bodies that the probe sent, without the user's own request."""
    posted = [json.loads(body) for line, _, body in far.asked if line.startswith(f"POST {CHAT} ")]
    return [body for body in posted if "user's own" not in str(body["messages"])]


async def test_model_is_probed_only_after_its_first_response(cache_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with odd(answers_with(leaks_mistral)) as far, started_backend(far.url) as backend:
        assert [line for line, *_ in far.asked] == ["GET /v1/models HTTP/1.1"]
        events = await generate_events(backend)
        assert isinstance(events[-1], Finish)
        assert backend.modes.get("qwen2.5-7b").tool_mode == "native"
        await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
        assert backend.modes.get("qwen2.5-7b").call_format == "mistral"
        assert probe_requests(far)
    assert "qwen2.5-7b is asked in tool mode parse, format mistral: a call was left in the text" in caplog.text
    (file,) = cache_dir.iterdir()
    kept = json.loads(file.read_text())
    assert (kept["choice"]["tool_mode"], kept["model"]) == ("parse", "qwen2.5-7b")


async def test_cached_probe_result_is_used_without_probing_again() -> None:
    async with odd(answers_with(leaks_mistral)) as far:
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
        far.asked.clear()
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            assert backend.modes.get("qwen2.5-7b").tool_mode == "parse"
            assert backend.modes.get("qwen2.5-7b").why.startswith("as found before: ")
            await eventually(lambda: any("/info" in line for line, *_ in far.asked))
        assert probe_requests(far) == []


async def test_cached_probe_result_is_used_if_probing_is_disabled() -> None:
    async with odd(answers_with(leaks_mistral)) as far:
        config = HttpConfig(url=f"{far.url}/v1", auto_probe=False)
        store(config, "qwen2.5-7b", "", "", Recommendation("parse", "as a test has it", "mistral"))
        backend = HttpBackend("far", config, {}, may_recall=True)
        await backend.start()
        assert backend.describe("qwen2.5-7b")["model_mode"]["tool_mode"] == "parse"
        await generate_events(backend)
        assert backend.modes.get("qwen2.5-7b").tool_mode == "parse"
        assert probe_requests(far) == []
        await backend.close()


async def test_server_with_api_key_is_probed_if_auto_probe_is_set() -> None:
    async with odd(answers_with(leaks)) as far, started_backend(far.url, api_key="paid", auto_probe=True) as backend:
        await generate_events(backend)
        await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")


async def test_count_tokens_uses_cached_tool_mode() -> None:
    def counts(path: str, asked: dict[str, Any]) -> Answer:
        return Answer('{"input_tokens": 7}') if path.endswith("/count_tokens") else models("qwen2.5-7b")

    async with odd(counts) as far:
        config = HttpConfig(url=f"{far.url}/v1", api="anthropic_messages")
        store(config, "qwen2.5-7b", "", "", Recommendation("prompt", "as a test has it", "hermes"))
        async with started_backend(far.url, api="anthropic_messages") as backend:
            assert await backend.count_tokens(msgspec.structs.replace(REQUEST, tools=(WEATHER,))) == 7
        counted = json.loads(far.asked[-1][2])
    assert "tools" not in counted
    assert "<tool_call>" in str(counted["system"])


async def test_probed_parse_mode_disables_passthrough() -> None:
    asked = msgspec.structs.replace(REQUEST, dialect="openai_chat")
    context = ExchangeContext("1", 0, random_id)
    async with odd(answers_with(leaks_mistral)) as far:
        async with started_backend(far.url, passthrough=True) as backend:
            assert backend.passthrough(asked, b"{}", asked.model, context) is not None
            await generate_events(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
        async with started_backend(far.url, passthrough=True) as backend:
            assert backend.passthrough(asked, b"{}", asked.model, context) is None


async def test_probe_result_of_another_rules_version_is_ignored(cache_dir: Path) -> None:
    async with odd(answers_with(calls)) as far:
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await eventually(lambda: list(cache_dir.glob("*.json")))
        (file,) = cache_dir.iterdir()
        kept = json.loads(file.read_text())
        kept["choice"]["tool_mode"] = "prompt"
        for rules, mode in ((kept["rules"], "prompt"), (kept["rules"] - 1, "native")):
            file.write_text(json.dumps({**kept, "rules": rules}))
            async with started_backend(far.url) as backend:
                await generate_events(backend)
                assert backend.modes.get("qwen2.5-7b").tool_mode == mode


async def test_changed_model_of_same_name_is_probed_again() -> None:
    entry, model = {"max_model_len": 1}, [leaks_mistral]

    def changing(path: str, asked: dict[str, Any]) -> Answer:
        return answers_with(model[0], **entry)(path, asked)

    async with odd(changing) as far:
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
        entry["max_model_len"], model[0] = 2, calls
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "native")
            assert backend.modes.get("qwen2.5-7b").why == "its own tool calls come, whole and streamed"


@pytest.mark.parametrize(
    "settings",
    [
        {"tool_mode": "native"},
        {"auto_probe": False},
        {"api_key": "paid"},
        {"model_overrides": {"qwen*": ModelOverride(tool_mode="prompt")}},
    ],
    ids=str,
)
async def test_probe_is_skipped_by_settings(settings: dict[str, Any], cache_dir: Path) -> None:
    async with odd(answers_with(leaks)) as far, started_backend(far.url, **settings) as backend:
        await generate_events(backend)
        await generate_events(backend)
        assert probe_requests(far) == []
    assert not cache_dir.exists()


async def test_trusted_provider_is_not_probed() -> None:
    listed = answers_with(calls)

    def dragoman(path: str, asked: dict[str, Any]) -> Answer:
        return listed(path, asked) if path != "/" else Answer('{"name": "dragoman"}')

    async with odd(dragoman) as far, started_backend(far.url) as backend:
        await generate_events(backend)
        await eventually(lambda: "can be trusted" in backend.modes.get("qwen2.5-7b").why)
        assert probe_requests(far) == []


async def test_detected_provider_sets_reasoning_field() -> None:
    thought = {"role": "assistant", "content": "4", "reasoning_content": "Two and two."}
    talk = [
        {"role": "user", "content": "2 + 2?"},
        thought,
        {"role": "user", "content": "Sure? A question of the user's own."},
    ]

    async with odd(answers_with(calls, owned_by="vllm")) as far, started_backend(far.url) as backend:
        asked = dialects.get("openai_chat").read_request(json.dumps({"model": "qwen2.5-7b", "messages": talk}))
        for field in ("reasoning_content", "reasoning"):
            far.asked.clear()
            assert await all_events(backend.generate(asked, ExchangeContext("1", 0, random_id)))
            sent = next(json.loads(body) for line, _, body in far.asked if line.startswith("POST"))
            assert field in sent["messages"][1]
            await eventually(lambda: backend.modes.get("qwen2.5-7b").why.startswith("its own tool calls come"))


async def test_failed_probe_keeps_native_mode(caplog: pytest.LogCaptureFixture) -> None:
    def model(asked: dict[str, Any]) -> Answer:
        return chat(asked, "yes") if "user's own" in str(asked["messages"]) else Answer("{}", 400)

    async with odd(answers_with(model)) as far, started_backend(far.url) as backend:
        await generate_events(backend)
        await eventually(lambda: "could not be measured, and is asked as before" in caplog.text)
        assert backend.modes.get("qwen2.5-7b").tool_mode == "native"


async def test_closing_backend_cancels_running_probe() -> None:
    hangs = asyncio.Event()

    async def play(server: Server, writer: Any) -> None:
        line, _, body = server.asked[-1]
        if b"user's own" in body or line.startswith("GET"):
            said = answers_with(calls)(line.split(" ")[1], json.loads(body) if body else {}).body.encode()
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(said) + said)
        else:
            hangs.set()
            await server.left.wait()

    async with server(play) as far:
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await hangs.wait()
        assert not [task for task in asyncio.all_tasks() if "_settled" in str(task.get_coro())]


LEAKED_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_model_is_rechecked_after_interval(cache_dir: Path) -> None:
    clock = Clock()
    async with odd(answers_with(calls)) as far:
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
            looked.append((len(far.asked) > 0, len(probe_requests(far)) > 0))
        await auto.close()
        await connection.close()
    assert looked == [(True, True), (False, False), (True, False), (False, False)]


@pytest.mark.parametrize("known", [True, False])
async def test_leaked_call_switches_model_to_parse_mode(known: bool, cache_dir: Path) -> None:
    async with odd(answers_with(calls)) as far:
        config = HttpConfig(url=far.url)
        connection, ways = UpstreamConnection("far", config, {}, versioned=True, key=""), ModelModes("far", config)
        await connection.start()
        auto = AutoMode("far", config, connection, ways, lambda kind: None)
        auto.load_cached("qwen2.5-7b")
        if known:
            auto.observe("qwen2.5-7b", Finish("stop"))
            await auto.wait_idle()
            assert ways.get("qwen2.5-7b").tool_mode == "native"
        auto.observe("qwen2.5-7b", Notice(LEAK_WARNING_CODE, ""))
        await auto.close()
        await connection.close()
    assert (ways.get("qwen2.5-7b").tool_mode, ways.get("qwen2.5-7b").why) == ("parse", "it left a call in the text")
    kept = [json.loads(file.read_text())["choice"]["tool_mode"] for file in cache_dir.glob("*")]
    assert kept == (["parse"] if known else [])


async def test_leaked_call_overrides_native_probe_result(cache_dir: Path) -> None:
    """The probe gets native calls; the user's request gets a call in the text."""

    def model(asked: dict[str, Any]) -> Answer:
        users = "user's own" in str(asked["messages"])
        return chat(asked, LEAKED_CALL) if users else calls(asked)

    asked = msgspec.structs.replace(REQUEST, tools=(WEATHER,))
    async with odd(answers_with(model)) as far, started_backend(far.url) as backend:
        for mode in ("native", "parse"):
            assert backend.modes.get("qwen2.5-7b").tool_mode == mode
            events = await all_events(backend.generate(asked, ExchangeContext("1", 0, random_id)))
            assert [event.name for event in events if isinstance(event, ToolCallStart)] == ["get_weather"]
            await eventually(lambda: list(cache_dir.glob("*.json")))
        assert backend.modes.get("qwen2.5-7b").why == "it left a call in the text"


@pytest.mark.parametrize("kept", ["", "{}", "nonsense", '{"choice": {"tool_mode": "shout", "why": ""}}'])
async def test_invalid_cache_file_is_ignored(kept: str, cache_dir: Path) -> None:
    async with odd(answers_with(leaks_mistral)) as far:
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            await eventually(lambda: list(cache_dir.glob("*.json")))
        (file,) = cache_dir.iterdir()
        file.write_text(kept)
        async with started_backend(far.url) as backend:
            await generate_events(backend)
            assert backend.modes.get("qwen2.5-7b").tool_mode == "native"
            await eventually(lambda: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
    assert json.loads(file.read_text())["choice"]["tool_mode"] == "parse"


async def test_processes_probe_a_model_once_and_see_each_others_results(tmp_path: Path) -> None:
    """Two backends with the same folder act as two processes."""
    async with odd(answers_with(leaks_mistral)) as far:
        async with started_backend(far.url) as alone:
            await generate_events(alone)
            await eventually(lambda: alone.modes.get("qwen2.5-7b").tool_mode == "parse")
            needed = len(probe_requests(far))
        for file in (tmp_path / "probes").iterdir():
            file.unlink()
        far.asked.clear()
        config = HttpConfig(url=f"{far.url}/v1")
        backends = [HttpBackend("far", config, {}, may_probe=True, shared=SharedState(tmp_path)) for _ in range(2)]
        for backend in backends:
            await backend.start()
        for backend in backends:
            await generate_events(backend)
        for backend in backends:
            await eventually(lambda backend=backend: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
        for backend in backends:
            await backend.close()
        assert len(probe_requests(far)) == needed


async def test_machines_probe_a_model_once(tmp_path: Path) -> None:
    """Backends with one store act as machines: the cache of files is deleted after each."""
    machines = MemoryStateStore()
    async with odd(answers_with(leaks_mistral)) as far:
        needed = 0
        for _ in range(2):
            shared, config = SharedState(None, machines), HttpConfig(url=f"{far.url}/v1")
            backend = HttpBackend("far", config, {}, may_probe=True, shared=shared)
            await backend.start()
            await generate_events(backend)
            await eventually(lambda backend=backend: backend.modes.get("qwen2.5-7b").tool_mode == "parse")
            await eventually(lambda: machines.usage(PROBES)[0] and not machines.usage(CLAIMS)[0])
            await backend.close()
            shared.close()
            for file in (tmp_path / "probes").iterdir():
                file.unlink()
            needed = needed or len(probe_requests(far))
        assert needed
        assert len(probe_requests(far)) == needed
        assert machines.usage(PROBES)[0] == 1
        assert machines.usage(CLAIMS)[0] == 0


async def test_replica_waits_for_the_claim_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.backends.probe.shared_results._POLL_S", 0.0)
    machines, inside = MemoryStateStore(), 0

    async def probe() -> None:
        nonlocal inside
        async with SharedState(None, machines).probe_lock("far\nmodel"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(probe() for _ in range(5)))


async def test_result_of_another_process_is_used_within_a_second(tmp_path: Path) -> None:
    clock, config = Clock(), HttpConfig(url="http://127.0.0.1:1/v1")
    for shared, seen in ((SharedState(tmp_path), "prompt"), (SharedState(), "parse")):
        store(config, "qwen2.5-7b", "", "one", Recommendation("parse", "as a test has it", "mistral"))
        modes = ModelModes("far", config)
        connection = UpstreamConnection("far", config, {}, versioned=True, key="")
        auto = AutoMode("far", config, connection, modes, lambda kind: None, clock, shared=shared)
        auto.load_cached("qwen2.5-7b")
        store(config, "qwen2.5-7b", "", "two", Recommendation("prompt", "as another process found", "hermes"))
        auto.load_cached("qwen2.5-7b")
        assert modes.get("qwen2.5-7b").tool_mode == "parse", "it looks once a second"
        clock.now += LOOK_INTERVAL_S
        auto.load_cached("qwen2.5-7b")
        assert modes.get("qwen2.5-7b").tool_mode == seen
