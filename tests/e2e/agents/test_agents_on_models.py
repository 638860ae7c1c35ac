"""Agents on real models that call a tool without being forced: minutes each, so only with --every.

The model is Qwen2.5-Coder 1.5B (`make weights-1.5b`), the smallest one here that does so; agents offer it one tool.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from bench import claude_code, offline

from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.identifiers import random_id
from support import agents, doc_examples, ran_pairs
from support.agents import NOTES
from support.doc_examples import GATEWAY, Block
from support.gateway import DEADLINE_S, environment, running
from support.scripted_backend import Script, Scripted, served
from support.servers.real import Real, llama_server, mlx

pytestmark = [pytest.mark.model, pytest.mark.every]

MODEL = "qwen2.5-coder-1.5b"


@pytest.mark.ran("Claude Code", "embedded model")
def test_claude_code_calls_tool_on_embedded_model() -> None:
    root = Path(claude_code.__file__).parent.parent
    did = subprocess.run(
        [sys.executable, "-m", "bench.claude_code"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=claude_code.DEADLINE_S,
    )
    assert did.returncode == 0, did.stdout + did.stderr
    assert f"tool_result 1 {claude_code.NOTES}" in did.stdout


@pytest.mark.ran("Claude Code", "llama-server")
async def test_claude_code_calls_tool_on_llama_server(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    with llama_server(model=MODEL) as url:
        config = settings_for(tmp_path, Real(f"{url}/v1", "smollm2"), tool_mode="native")
        with running(tmp_path, "--config", str(config)) as gateway:
            told = await agents.claude_code(gateway.url, tmp_path, folder, "--bare", "--tools", "Read")
    assert read_the_notes(told)


@pytest.fixture
def short() -> Iterator[Path]:
    """A home with a short path, which a small model copies without errors."""
    with tempfile.TemporaryDirectory() as home:
        yield Path(home)


@pytest.mark.ran("Claude Code", "mlx_lm.server")
async def test_claude_code_calls_tool_on_mlx_lm(short: Path) -> None:
    """SmolLM2 135M, as MLX on a CPU reads one token a second of a larger model.

    A model of that size calls a tool only after examples: a scripted model reads two files earlier in the session.
    """
    folder = agents.folder_of(short)
    options = ["--bare", "--tools", "Read", "--system-prompt", "You read files."]
    for count, (name, text) in enumerate({"apples.txt": "three apples\n", "colours.txt": "blue\n"}.items()):
        (folder / name).write_text(text)
        earlier = ["--continue"] if count else []
        async with served(reads(folder / name)) as far:
            await agents.claude_code(far.url, short, folder, *options, *earlier, prompt=f"Read {name}")
    with mlx("parse") as server:
        config = settings_for(short, server, tool_mode="parse", call_format="hermes")
        with running(short, "--config", str(config)) as gateway:
            asked: dict[str, Any] = {"prompt": "Read notes.txt", "deadline_s": claude_code.DEADLINE_S}
            told = await agents.claude_code(gateway.url, short, folder, *options, "--continue", **asked)
    assert read_the_notes(told)
    assert NOTES.strip() in told[-1]["result"]


def reads(file: Path) -> Script:
    """A scripted model that reads this file, and repeats its first line."""

    async def play(backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        results = [p for m in request.messages[-2:] for p in m.parts if isinstance(p, v.ToolResult)]
        yield Start("", "", 0)
        if results:
            yield TextDelta(f"It holds {agents.words(results[-1]).split(chr(9))[1].splitlines()[0]}.")
        else:
            yield ToolCallStart(0, random_id(), "Read")
            yield ToolCallDelta(0, json.dumps({"file_path": str(file)}))
            yield ToolCallEnd(0)
        yield Finish("stop")

    return play


def settings_for(home: Path, server: Real, **settings: str) -> Path:
    """A config file with an alias from Claude Code's model to the server's model."""
    config = home / "config.toml"
    named = {"url": server.url, "models": [server.model], **settings}
    lines = [f"{name} = {json.dumps(value)}" for name, value in named.items()]
    config.write_text("\n".join(["[model_aliases]", f'm = "{server.model}"', "[upstreams.behind]", *lines]))
    return config


def read_the_notes(told: list[dict[str, Any]]) -> bool:
    """Whether the model called Read, and its result is the file's text."""
    run = claude_code.Run(told)
    results = [str(result["content"]) for result in run.parts("user", "tool_result")]
    return {call["name"] for call in run.parts("assistant", "tool_use")} == {"Read"} and NOTES.strip() in results[-1]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a gateway with the embedded model."""
    with running(tmp_path_factory.mktemp("home"), "--model", MODEL) as gateway:
        yield gateway.url


FRAMEWORKS: Final = [
    pytest.param(block, marks=pytest.mark.ran(block.heading, "embedded model"), id=str(block))
    for block in [*doc_examples.of("python"), *doc_examples.of("js")]
    if block.page == "docs/sdks.md" and MODEL in block.code and block.heading in ran_pairs.FRONT
]


@pytest.mark.parametrize("block", FRAMEWORKS)
def test_sdk_examples_work_on_embedded_model(block: Block, embedded: str, tmp_path: Path) -> None:
    """The examples of docs/sdks.md: the model calls the tool, and its answer uses the result."""
    code = block.code.replace(GATEWAY, embedded)
    (tmp_path / "example.py").write_text(code)
    is_js = block.language == "js"
    before = weather_calls(embedded)
    done = subprocess.run(
        [offline.node(), "--input-type=module", "-"] if is_js else [sys.executable, "example.py"],
        input=code,
        env=environment(tmp_path),
        cwd=offline.CLIENTS.parent if is_js else tmp_path,
        capture_output=True,
        text=True,
        timeout=5 * DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert weather_calls(embedded) > before
    assert "Paris" in done.stdout
    assert "sunny" in done.stdout.lower()


def weather_calls(url: str) -> float:
    """The number of valid calls of `get_weather` so far."""
    metrics = httpx2.get(f"{url}/metrics", trust_env=False).text
    counted = f'dragoman_tool_calls_total{{model="{MODEL}",outcome="valid",tool="get_weather"}} '
    return float(metrics.partition(counted)[2].partition("\n")[0] or 0)
