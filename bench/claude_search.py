"""Web search of the real Claude Code on a local model: the gateway searches a folder of one page.

    python -m bench.claude_search [--model NAME] [--record]    the model runs: two minutes
    python -m bench.claude_search --replay                     the model's recorded texts instead

The model answers four times: it calls Claude Code's `WebSearch`; in the side request of that tool it calls the function
`web_search`, which the gateway runs, and reports what was found; it answers the user. The exit status is 0 if Claude
Code shows "Did 1 search" with the URL of the page. `--record` stores the model's texts in
tests/data/backends/claude_search/.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.claude_code import Run, ask, main, recording_backend, recording_head, serve
from dragoman.core.backend import Backend
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.tool_executors.config import ToolsConfig, WebSearchConfig
from dragoman.tool_executors.registry import build_executors
from support.paths import DATA
from support.recorded_backend import RecordedBackend

RECORDING: Final = DATA / "backends" / "claude_search" / "recording.jsonl"
PROMPT: Final = "Search the web: when was Dragoman 1.0 released?"
PAGES: Final = "https://docs.example.com"
PAGE: Final = "# Releases\n\nDragoman 1.0 was released on the fifth of May.\n"
_SYSTEM: Final = "You search the web with the tool WebSearch, and answer from its results."
FLAGS: Final = ("--tools", "WebSearch", "--allowedTools", "WebSearch", "--system-prompt", _SYSTEM)
QUESTIONS: Final = {
    PROMPT: "WebSearch",
    "Perform a web search for the query": "web_search",
    "released on the fifth of May": "",
    "Web search results for query": "",
}
"""What the last message of each request to the model contains, and the tool that the model calls; "": it answers."""


def search_config(folder: Path) -> WebSearchConfig:
    """Returns settings that search a page in this folder, which is created."""
    folder.mkdir()
    (folder / "releases.md").write_text(PAGE)
    return WebSearchConfig(use="local", path=str(folder), base_url=PAGES)


def failures(run: Run) -> list[str]:
    """Returns which requirements the run did not meet; empty: it succeeded."""
    called = {part["name"] for part in run.parts("assistant", "tool_use")}
    results = [line for line in run.lines if line["type"] == "user"]
    uses = run.end().get("modelUsage", {}).values()
    tool_results = [line["tool_use_result"] for line in results if isinstance(line.get("tool_use_result"), Mapping)]
    found = json.dumps(tool_results, separators=(",", ":"))
    checks = {
        "only WebSearch is called": called == {"WebSearch"},
        'Claude Code shows "Did 1 search"': [each.get("searchCount") for each in tool_results] == [1],
        "the result has the URL of the page": f'"url":"{PAGES}/releases.md"' in found,
        "searches are counted": any(use["webSearchRequests"] for use in uses),
        "there is an answer": run.end().get("is_error") is False and bool(run.end().get("result")),
    }
    failed = [f"expected: {check}" for check, is_met in checks.items() if not is_met]
    return [*failed, run.errors or json.dumps(run.end())] if failed else []


def _write_recording(run: Run, texts: list[list[str]], model: str) -> None:
    """Writes the texts; the second of the three requests of Claude Code has two rounds.

    Args:
        run: Claude Code's output.
        texts: The model's texts for each request; more than needed where it was re-asked.
        model: Name of the model.
    """
    first, side, last = texts
    lines: list[object] = [recording_head(run, model)]
    for (question, tool), written in zip(QUESTIONS.items(), (first, side, side, last), strict=True):
        used = next(text for text in written if f'"{tool}"' in text) if tool else written[-1]
        lines.append({"asked": question, "text": used, "all_texts": written})
    RECORDING.parent.mkdir(parents=True, exist_ok=True)
    RECORDING.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def run_session(model: str, record: bool, replay: bool) -> int:
    """Runs it once; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="search-") as name:
        folder = Path(name).resolve()
        backend: Backend
        backend, engine = (RecordedBackend.of(RECORDING), None) if replay else recording_backend(model)
        tools = VendorToolRunner(build_executors(ToolsConfig(web_search=search_config(folder / "pages"))))
        gateway = Gateway([backend], vendor_tools=tools)
        run, recorder = serve(gateway, engine, lambda url: ask(url, model, folder, PROMPT, FLAGS))
    print(run.transcript(PROMPT))
    for failure in (failed := failures(run)):
        print(f"failed: {failure}")
    if record and not failed:
        _write_recording(run, recorder.texts, model)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main("bench.claude_search", __doc__, run_session))
