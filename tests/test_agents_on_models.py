"""Agents on real models that call a tool of their own accord: minutes each, so only with --every.

The model is Qwen2.5-Coder 1.5B (`make weights-1.5b`), the smallest here that does; agents offer it one tool.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import claude_code

import agents
from agents import NOTES
from gateway import running
from servers.real import llama_server

pytestmark = [pytest.mark.model, pytest.mark.every]

MODEL = "qwen2.5-coder-1.5b"


@pytest.mark.ran("Claude Code", "embedded model")
def test_claude_code_on_the_model_in_the_box() -> None:
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
async def test_claude_code_on_llama_server(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    config = tmp_path / "config.toml"
    with llama_server(model=MODEL) as behind:
        settings = {"url": f"{behind}/v1", "models": ["smollm2"], "mode": "native"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
        config.write_text("\n".join(["[aliases]", 'm = "smollm2"', "[servers.behind]", *lines]))
        with running(tmp_path, "--config", str(config)) as gateway:
            told = await agents.claude_code(gateway.url, tmp_path, folder, "--bare", "--tools", "Read")
    run = claude_code.Run(told)
    assert {call["name"] for call in run.parts("assistant", "tool_use")} == {"Read"}
    assert any(NOTES.strip() in str(result["content"]) for result in run.parts("user", "tool_result"))
