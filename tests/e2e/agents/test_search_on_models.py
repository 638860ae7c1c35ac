"""Web search of the real Claude Code on real models, with results of a local index: minutes each, so only with --every.

The model is Qwen2.5-Coder 1.5B (`make weights-1.5b`). It calls both tools by itself: Claude Code's `WebSearch`, and in
the side request of Claude Code the function `web_search`, which the gateway runs.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from bench import claude_code

from support import agents
from support.gateway import running
from support.servers.real import llama_server

pytestmark = [pytest.mark.model, pytest.mark.every]

MODEL: Final = "qwen2.5-coder-1.5b"
PROMPT: Final = "Search the web: when was Dragoman 1.0 released?"
PAGES: Final = "https://docs.example.com"
PAGE: Final = "# Releases\n\nDragoman 1.0 was released on the fifth of May.\n"
SYSTEM: Final = "You search the web with the tool WebSearch, and answer from its results."
OPTIONS: Final = ("--tools", "WebSearch", "--allowedTools", "WebSearch", "--system-prompt", SYSTEM)


def settings(home: Path, *lines: str) -> Path:
    """A config file with a folder of one page that is searched."""
    pages = home / "pages"
    pages.mkdir()
    (pages / "releases.md").write_text(PAGE)
    search = {"use": "local", "path": str(pages), "base_url": PAGES}
    config = home / "config.toml"
    written = (f"{name} = {json.dumps(value)}" for name, value in search.items())
    config.write_text("\n".join(["[tools.web_search]", *written, *lines]))
    return config


async def search(url: str, home: Path) -> list[dict[str, Any]]:
    folder = agents.folder_of(home)
    return await agents.claude_code(url, home, folder, *OPTIONS, prompt=PROMPT, deadline_s=claude_code.DEADLINE_S)


def assert_searched(told: list[dict[str, Any]]) -> None:
    """The model called WebSearch; Claude Code shows "Did 1 search", and results of the folder."""
    run = claude_code.Run(told)
    print(json.dumps(told, indent=1))
    assert {call["name"] for call in run.parts("assistant", "tool_use")} == {"WebSearch"}
    line = next(line for line in told if line["type"] == "user")
    (result,) = line["message"]["content"]
    assert f'"url":"{PAGES}/releases.md"' in result["content"]
    assert line["tool_use_result"]["searchCount"] == 1
    assert run.end()["modelUsage"]["m"]["webSearchRequests"] >= 1


@pytest.mark.ran("Claude Code", "embedded model")
async def test_claude_code_searches_on_embedded_model(tmp_path: Path) -> None:
    config = settings(tmp_path, "[model_aliases]", f'm = "{MODEL}"')
    with running(tmp_path, "--config", str(config), "--model", MODEL) as gateway:
        assert_searched(await search(gateway.url, tmp_path))


@pytest.mark.ran("Claude Code", "llama-server")
async def test_claude_code_searches_on_llama_server(tmp_path: Path) -> None:
    with llama_server(model=MODEL, context=8192) as url:
        upstream = {"url": f"{url}/v1", "models": ["smollm2"], "tool_mode": "prompt", "call_format": "hermes"}
        lines = (f"{name} = {json.dumps(value)}" for name, value in upstream.items())
        config = settings(tmp_path, "[model_aliases]", 'm = "smollm2"', "[upstreams.behind]", *lines)
        with running(tmp_path, "--config", str(config)) as gateway:
            assert_searched(await search(gateway.url, tmp_path))
