"""Web search of the real Claude Code on a real model: Claude Code shows "Did 1 search", with results of a local index.

The model is Qwen2.5-Coder 1.5B (`make weights-1.5b`). It calls both tools by itself: Claude Code's `WebSearch`, and in
the side request of Claude Code the function `web_search`, which the gateway runs. `make claude ARGS=--record` records
its texts; on the model itself it takes minutes, so only with --every.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import claude_code, claude_search

from support import agents
from support.gateway import DEADLINE_S, running
from support.paths import ROOT
from support.servers.real import llama_server

MODEL = "qwen2.5-coder-1.5b"


def search(*args: str, timeout_s: float) -> None:
    command = [sys.executable, "-m", "bench.claude_search", *args]
    did = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s)
    assert did.returncode == 0, did.stdout + did.stderr


def test_claude_code_searches_with_recorded_texts() -> None:
    search("--replay", timeout_s=4 * DEADLINE_S)


@pytest.mark.model
@pytest.mark.every
def test_claude_code_searches_on_embedded_model() -> None:
    search(timeout_s=claude_code.DEADLINE_S)


@pytest.mark.model
@pytest.mark.every
async def test_claude_code_searches_on_llama_server(tmp_path: Path) -> None:
    """In tool mode `prompt`, as with its own template the model does not call the tool; it would repeat the call."""
    config = tmp_path / "config.toml"
    found = claude_search.search_config(tmp_path / "pages")
    with llama_server(model=MODEL, context=8192) as url:
        upstream = {
            "url": f"{url}/v1",
            "models": ["smollm2"],
            "tool_mode": "prompt",
            "call_format": "hermes",
            "max_output_tokens": 200,  # a small model may repeat itself
        }
        searched = {"use": found.use, "path": found.path, "base_url": found.base_url}
        sections = {"model_aliases": {"m": "smollm2"}, "upstreams.behind": upstream, "tools.web_search": searched}
        sections["guard"] = {"max_identical_calls": 1}
        config.write_text(
            "".join(
                f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())
                for name, fields in sections.items()
            )
        )
        with running(tmp_path, "--config", str(config)) as gateway:
            told = await agents.claude_code(
                gateway.url,
                tmp_path,
                agents.folder_of(tmp_path),
                *claude_search.FLAGS,
                prompt=claude_search.PROMPT,
                deadline_s=claude_code.DEADLINE_S,
            )
    assert claude_search.failures(claude_code.Run(told)) == []
