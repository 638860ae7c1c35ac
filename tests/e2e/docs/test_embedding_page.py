"""The two example programs of docs/embedding.md, run unchanged."""

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import dragoman
from dragoman import dialects
from dragoman.core.backend import ExchangeContext
from support.gateway import DEADLINE_S
from support.paths import ROOT
from support.servers.real import START_S

PAGE = (ROOT / "docs" / "embedding.md").read_text()
SOURCES = str(Path(dragoman.__file__).parent.parent)


def ran(program: str, *args: str, body: bytes = b"", limit_s: float = DEADLINE_S) -> bytes:
    """Runs one of the programs, and returns its output."""
    did = subprocess.run(
        [sys.executable, str(ROOT / "examples" / program), *args],
        input=body,
        env={"PATH": os.defpath, "PYTHONPATH": SOURCES, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        timeout=limit_s,
    )
    assert did.returncode == 0, did.stderr.decode()
    return did.stdout


# Tokens from another process


def test_exo_example_serves_concurrent_requests() -> None:
    """Prints the output shown on the page, in any order."""
    (shown,) = re.findall(r"exo_loop.py \| sort\n(.*?)```", PAGE, re.S)
    assert sorted(ran("exo_loop.py").decode().splitlines()) == shown.splitlines()


@pytest.fixture(scope="module")
def exo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exo_loop", ROOT / "examples" / "exo_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look up their annotations there
    spec.loader.exec_module(module)
    return module


async def test_client_disconnect_stops_only_its_request(exo: ModuleType) -> None:
    endless, short = 1_000_000, ["Hel", "lo"]
    runner = exo.Runner({"endless": ["word "] * endless, "short": short}, asyncio.get_running_loop())
    engine = exo.Engine(runner, "hermes")
    with contextlib.closing(runner):
        async with contextlib.aclosing(engine.ask("1", "endless", [], endless)) as leaving:
            assert (await anext(leaving)).text == "word"
            said = [chunk async for chunk in engine.ask("2", "short", [])]
        last = [chunk async for chunk in engine.ask("3", "short", [])]
    assert "".join(chunk.text for chunk in said) == "".join(chunk.text for chunk in last) == "Hello"
    assert 0 < runner.steps["1"] < endless


async def test_failed_response_is_reported(exo: ModuleType) -> None:
    with contextlib.closing(exo.Runner({}, asyncio.get_running_loop())) as runner:
        (chunk,) = [chunk async for chunk in exo.Engine(runner, "hermes").ask("1", "?", [])]
    assert chunk == exo.ErrorChunk("the model has no such prompt")


# A generation loop of the real mlx_lm, with real weights


@pytest.mark.model
@pytest.mark.every
def test_mlx_example_streams_tool_call() -> None:
    """A forced call: the small model has one such call in its history, and the next one is begun for it."""
    if sys.platform == "win32":
        pytest.skip("MLX has no build for Windows")
    from support.servers import convert

    made: Any = {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    tool = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    said = [
        {"role": "user", "content": "What is the weather in Rome?"},
        {"role": "assistant", "tool_calls": [{"id": "call_a", "type": "function", "function": made}]},
        {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": "What is the weather in Paris?"},
    ]
    asked = {"messages": said, "tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
    settings = {"model": "m", "stream": True, "max_tokens": 20, "parallel_tool_calls": False}
    body = json.dumps({**asked, **settings, "stream_options": {"include_usage": True}}).encode()
    stream = ran("mlx_loop.py", str(convert.folder()), body=body, limit_s=START_S)
    chat = dialects.get("openai_chat")
    reader = chat.reader(chat.read_request(body), ExchangeContext("1", 0, iter("abc").__next__))
    events = [*reader.feed(stream), *reader.close()]
    reply = dragoman.collect(events)
    (call,) = reply.parts
    assert isinstance(call, dragoman.ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.output_tokens < 20
