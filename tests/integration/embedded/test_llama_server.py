"""The embedded model in a real llama-server, which Dragoman starts and ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.engine_output import TokenText
from dragoman.core import events as ev
from dragoman.core import messages as v
from dragoman.core.backend import EventStream, ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.errors import BackendUnavailableError, ConfigError
from support.events import all_events
from support.llama_server_program import llama_server_program
from support.scripted_llama import PROFILE, backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
WEATHER = v.Tool("get_weather", "Weather in a city.", json.dumps(SCHEMA))


def served(**config: Any) -> EmbeddedModel:
    return backend(**{"engine": "llama-server", "llama_server": llama_server_program(), **config})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def small() -> AsyncIterator[EmbeddedModel]:
    embedded = served(context_window=2048)
    await embedded.start()
    yield embedded
    await embedded.close()


def request(text: str = "Write a list of 500 animals, one a line.", **more: Any) -> v.Request:
    settings: dict[str, Any] = {"max_tokens": 1000, "sampling": v.Sampling(temperature=0), **more}
    return v.Request(PROFILE.name, (v.Message("user", (v.Text(text),)),), **settings)


def ask(embedded: EmbeddedModel, asked: v.Request) -> EventStream:
    return embedded.generate(asked, ExchangeContext("id", 0, iter("abcdefgh").__next__))


async def engine_counter(embedded: EmbeddedModel, counter: str) -> int:
    """One of the engine's own counters, read when it is idle."""
    while True:
        lines = (await embedded.engine.metrics()).splitlines()
        counts = dict(line.removeprefix("llamacpp:").split() for line in lines if not line.startswith("#"))
        if counts["requests_processing"] == "0":
            return int(counts[counter])


async def test_usage_equals_engine_counters(small: EmbeddedModel) -> None:
    names = ("prompt_tokens_total", "tokens_predicted_total")
    before = [await engine_counter(small, name) for name in names]
    usage = collect(await all_events(ask(small, request("Tell me of the sea.", max_tokens=20)))).usage
    prompt, predicted = [await engine_counter(small, n) - b for n, b in zip(names, before, strict=True)]
    assert usage.output_tokens == predicted == 20
    assert usage.input_tokens - usage.cached_input_tokens == prompt
    assert await small.count_tokens(request("Tell me of the sea.")) == usage.input_tokens


async def test_required_call_is_constrained(small: EmbeddedModel) -> None:
    asked = request("Hello!", tools=(WEATHER,), tool_choice=v.ToolChoice("required"), max_tokens=60)
    response = collect(await all_events(ask(small, asked)))
    call = next(part for part in response.parts if isinstance(part, v.ToolCall))
    assert call.name == "get_weather"
    assert json.loads(call.arguments)["city"] in ("Paris", "Rome")


async def test_response_schema_is_enforced(small: EmbeddedModel) -> None:
    asked = request("Hello!", response_schema=json.dumps(SCHEMA), max_tokens=60)
    (text,) = collect(await all_events(ask(small, asked))).parts
    assert isinstance(text, v.Text)
    assert json.loads(text.text)["city"] in ("Paris", "Rome")


async def test_optional_call_leaves_text_free(small: EmbeddedModel) -> None:
    prepared = small.prepare(request("Hello!", tools=(WEATHER,), response_schema=json.dumps(SCHEMA)))
    assert prepared.body["grammar_lazy"]
    assert [notice.code for notice in prepared.warnings] == ["constraint_not_applied"]
    response = collect(await all_events(ask(small, request("Hello!", tools=(WEATHER,), max_tokens=10))))
    assert any(isinstance(part, v.Text) for part in response.parts)


async def test_client_disconnect_stops_engine(small: EmbeddedModel) -> None:
    before = await engine_counter(small, "tokens_predicted_total")
    async with aclosing(ask(small, request())) as events:
        async for batch in events:
            if isinstance(batch[-1], ev.TextDelta):
                break
    assert small.engine.active == 0
    assert 0 < await engine_counter(small, "tokens_predicted_total") - before < 50


async def test_killed_program_is_restarted(small: EmbeddedModel) -> None:
    async def kill_while_it_writes() -> None:
        async for output in small.engine.complete({"prompt": "A list of animals:", "n_predict": 500}):
            if isinstance(output, TokenText) and small.engine.pid:
                os.kill(small.engine.pid, signal.SIGKILL)

    with pytest.raises(BackendUnavailableError, match="signal SIGKILL"):
        await kill_while_it_writes()
    response = collect(await all_events(ask(small, request("Hi", max_tokens=3))))
    assert response.usage.output_tokens == 3
    assert small.engine.restarts == 1


async def test_hardware_is_reported() -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    embedded = served(context_window=512, max_concurrency=1)
    model = EmbeddedModel(weights.find_weights(PROFILE.name), PROFILE, embedded._description[1], lines.put_nowait)
    await model.start()
    while ": " not in (line := await lines.get()):
        continue
    await model.close()
    assert line == f"{weights.find_weights(PROFILE.name).stem}: {model.engine.hardware}"
    assert ("CPU only, 1 thread" in line) == (not model.engine.load_facts.devices)


async def test_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"expected an executable program, got '/none' - at embedded.llama_server"):
        backend(engine="llama-server", llama_server="/none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="expected the program 'llama-server' on the PATH, found none"):
        backend(engine="llama-server")


async def test_rejected_option_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'error: invalid argument: --cache-ram' >&2\nexit 1\n")
    program.chmod(0o700)
    embedded = served(llama_server=str(program))
    with pytest.raises(BackendUnavailableError, match="exit status 1: error: invalid argument: --cache-ram"):
        await embedded.start()


async def test_memory_limit_applies() -> None:
    embedded = served(memory_limit_mb=60)
    with pytest.raises(BackendUnavailableError, match=r"embedded.memory_limit_mb = 60 may be too small"):
        await embedded.start()


OWNER = """
import asyncio, sys
from dragoman.backends.embedded.config import EmbeddedConfig
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from pathlib import Path

async def main():
    config = EmbeddedConfig(engine="llama-server", llama_server=sys.argv[1], threads=1, context_window=512)
    model = EmbeddedModel(Path(sys.argv[2]), None, config, lambda line: None)
    await model.start()
    print(model.engine.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("victim", ["gateway", "worker"])
async def test_program_ends_with_its_owner(victim: str) -> None:
    if victim == "worker" and sys.platform != "linux":
        pytest.skip("only Linux ends a child process whose parent was killed")
    path = str(weights.find_weights(PROFILE.name))
    command = [sys.executable, "-c", OWNER, llama_server_program(), path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        program = psutil.Process(int(owner.stdout.readline()))
        worker = program.parent()
        assert worker is not None
        assert worker.ppid() == owner.pid
        (worker if victim == "worker" else owner).send_signal(signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, [program], 20)
        assert not program.is_running()
        owner.kill()
