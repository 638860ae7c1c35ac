"""Web search of the real Claude Code and Codex: results of the gateway, or an honest error."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from bench.claude_code import Run

from dragoman.core import messages as v
from dragoman.core.events import AnyEvent, Finish, Start, TextDelta, UsageUpdate
from dragoman.gateway.gateway import NO_VENDOR_TOOLS, Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.tool_executors.config import ToolsConfig, WebSearchConfig
from dragoman.tool_executors.registry import build_executors
from support import agents
from support.scenarios import call
from support.scripted_backend import AS_PLAYED, IMPATIENT, Scripted, serving

QUERY: Final = "dragoman release date"
INVENTED: Final = "According to example.org, it was released in 1492."
PAGE: Final = "# Releases\n\nDragoman 1.0 was released on the fifth of May.\n"


class Searching:
    """A scripted model: makes its calls, each after the result of the one before, then repeats the first result.

    Without a search it invents what it found, as a real model does.
    """

    def __init__(self, *calls: list[AnyEvent]) -> None:
        self.calls = calls
        self.asked: list[v.Request] = []
        """Requests of the agent."""
        self.side: list[v.Request] = []
        """Requests of Claude Code for the search itself."""

    async def __call__(self, backend: Scripted, request: v.Request) -> AsyncGenerator[AnyEvent, None]:
        results = results_of(request)
        yield Start("", "", 0, 100)
        if "You run a web search" in json.dumps([m.parts for m in request.messages], default=str):
            self.side.append(request)
            events = [TextDelta(INVENTED)] if results or not request.tools else call(0, "web_search", query=QUERY)
        else:
            self.asked.append(request)
            done = len(results) == len(self.calls)
            events = [TextDelta(agents.words(results[0]))] if done else self.calls[len(results)]
        for event in events:
            yield event
        yield UsageUpdate(v.Usage(100, 5))
        yield Finish("stop")


def results_of(request: v.Request) -> list[v.ToolResult]:
    return [part for message in request.messages for part in message.parts if isinstance(part, v.ToolResult)]


@asynccontextmanager
async def gateway(script: Searching, runner: VendorToolRunner) -> AsyncIterator[str]:
    made = Gateway([Scripted(script)], policy=AS_PLAYED, vendor_tools=runner)
    async with serving(made, **IMPATIENT) as (_, url):
        yield url


def local_search(folder: Path) -> VendorToolRunner:
    folder.mkdir()
    (folder / "releases.md").write_text(PAGE)
    search = WebSearchConfig(use="local", path=str(folder), base_url="https://docs.example.com")
    return VendorToolRunner(build_executors(ToolsConfig(web_search=search)))


async def web_search_of_claude_code(home: Path, runner: VendorToolRunner) -> tuple[Run, dict[str, Any], Searching]:
    """The run, the line with the result of its search, and the script."""
    script = Searching(call(0, "WebSearch", query=QUERY))
    options = ["--tools", "WebSearch,Read", "--allowedTools", "WebSearch"]
    async with gateway(script, runner) as url:
        told = await agents.claude_code(url, home, agents.folder_of(home), *options, prompt="When was it released?")
    run = Run(told)
    (line,) = (line for line in told if line["type"] == "user")
    assert [part["type"] for part in line["message"]["content"]] == ["tool_result"]
    return run, line, script


@pytest.mark.ran("Claude Code", "a script")
async def test_claude_code_gets_results_of_local_search(tmp_path: Path) -> None:
    run, line, script = await web_search_of_claude_code(tmp_path, local_search(tmp_path / "pages"))
    (result,) = line["message"]["content"]
    assert '"url":"https://docs.example.com/releases.md"' in result["content"]
    assert line["tool_use_result"]["searchCount"] == 1  # shown as "Did 1 search"
    assert run.end()["modelUsage"]["m"]["webSearchRequests"] == 1
    first, second = script.side
    assert [tool.name for tool in first.tools] == ["web_search"]
    (read,) = results_of(second)
    assert "released on the fifth of May" in agents.words(read)


@pytest.mark.ran("Claude Code", "a script")
async def test_claude_code_reports_unavailable_search(tmp_path: Path) -> None:
    run, line, script = await web_search_of_claude_code(tmp_path, NO_VENDOR_TOOLS)
    (result,) = line["message"]["content"]
    assert "Web search error: unavailable" in result["content"]
    assert "This gateway has no web search" in result["content"]
    assert INVENTED not in result["content"]
    assert "Links:" not in result["content"]
    assert run.end()["modelUsage"]["m"]["webSearchRequests"] == 0
    assert script.side == []


@pytest.mark.ran("Codex", "a script")
@pytest.mark.parametrize("is_configured", [True, False])
async def test_codex_gets_search_call_and_sends_it_back(tmp_path: Path, is_configured: bool) -> None:
    """If no search is configured, the model that calls it all the same reads an error."""
    script = Searching(call(0, "web_search", query=QUERY), call(0, "exec_command", cmd="cat notes.txt"))
    runner = local_search(tmp_path / "pages") if is_configured else NO_VENDOR_TOOLS
    async with gateway(script, runner) as url:
        told = await agents.codex(url, tmp_path, agents.folder_of(tmp_path), "m", "-c", "web_search=live")
    items = [line["item"] for line in told if line["type"] == "item.completed"]
    (search,) = (item for item in items if item["type"] == "web_search")
    assert search["query"] == QUERY
    first, *_, last = script.asked
    offered = [tool.kind for tool in first.tools if "web_search" in (tool.name, tool.kind)]
    assert offered == ["function" if is_configured else "web_search"]
    found, printed = results_of(last)
    assert agents.NOTES in agents.words(printed)
    assert ("released on the fifth of May" in agents.words(found)) == is_configured
    assert found.is_error != is_configured
    assert items[-1]["text"] == agents.words(found)
