"""Real agents in an interactive terminal (without `-p`), up to a tool call and its response."""

import json
import os
import sys
from pathlib import Path

import pyte
import pytest
from bench import first_use, offline
from bench.terminal import Terminal, terminal_text

from support import agents
from support.agents import PROMPT, Calling
from support.scripted_backend import in_thread
from support.source_path import SOURCES

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX terminal")


def environment(home: Path, *programs: Path) -> dict[str, str]:
    path = ":".join([*(str(each.parent) for each in programs), os.defpath])
    shut = {"HTTPS_PROXY": agents.NOWHERE, "HTTP_PROXY": agents.NOWHERE, "NO_PROXY": "127.0.0.1"}
    return {**offline.environment(home, **shut), "PATH": path, "PYTHONPATH": SOURCES}


def command(agent: str, url: str, *args: str) -> list[str]:
    behind = ["--upstream", f"{url}/v1", "--model", "m", "--context-window", "131072"]
    return [sys.executable, "-m", "dragoman", "run", agent, *behind, "--", *args]


@pytest.mark.ran("Codex", "Chat Completions")
def test_codex_in_terminal_runs_tool_call(tmp_path: Path) -> None:
    folder = agents.folder_of(tmp_path)
    script = Calling("exec_command", {"cmd": "cat notes.txt"}, pauses=False)
    with (
        in_thread(script) as url,
        Terminal(command("codex", url), environment(tmp_path, offline.codex()), folder) as terminal,
    ):
        terminal.wait_for("Ask Codex to do anything")
        terminal.settle()
        terminal.type(PROMPT)
        terminal.settle()
        terminal.type("\r")
        terminal.wait_for("pomegranate")
    assert script.result().count("pomegranate") == 1


@pytest.mark.model
@pytest.mark.every
@pytest.mark.parametrize("name", first_use.SESSIONS)
def test_first_use_session_with_model(name: str) -> None:
    """Minutes: `make firstuse`."""
    assert first_use.run_session(name, record=False) == 0


def screens(path: Path) -> tuple[list[tuple[float, str]], dict[str, float]]:
    """The screen after each output of a recording, and the time of each marker, in seconds from its start."""
    head, *lines = map(json.loads, path.read_text().splitlines())
    screen = pyte.Screen(head["width"], head["height"])
    stream = pyte.Stream(screen)
    shown, typed = [], {}
    for at, kind, text in lines:
        if kind == "m":
            typed[text] = at
        elif kind == "o":
            stream.feed(terminal_text(text))
            shown.append((at, "\n".join(line.rstrip() for line in screen.display)))
    return shown, typed


@pytest.mark.parametrize("name", first_use.SESSIONS)
def test_first_use_recording_answers_within_limits(name: str) -> None:
    """Each question is answered within its time limit, the one about a file after the tool has read it."""
    questions = first_use.SESSIONS[name]
    shown, typed = screens(first_use.RECORDINGS / f"{name}.cast")
    assert list(typed) == [question.text for question in questions]
    for number, question in enumerate(questions):
        asked_s = typed[question.text]
        said = ((at, first_use.answer(text, question, number)) for at, text in shown if at > asked_s)
        answered_s, answer = next((at, text) for at, text in said if text)
        assert answered_s - asked_s < question.limit_s
        assert "tool_call" not in answer
    assert not any("check actions" in text for _, text in shown)


def test_multi_line_answer_is_read_from_screen() -> None:
    screen = """
❯ What does the file notes.txt say?

  Read 1 file

● The file notes.txt says:

  1. Meet Ada at the lighthouse on Tuesday.
  2.

✻ Cooked for 1m 26s

  ⏸ manual mode on
"""
    said = "● The file notes.txt says:\n\n  1. Meet Ada at the lighthouse on Tuesday.\n  2."
    assert first_use.answer(screen, first_use.FILE) == said
    assert first_use.answer(screen, first_use.FILE, 1) == ""
    assert first_use.answer(screen.replace("Read 1 file", ""), first_use.FILE) == ""


@pytest.mark.ran("Claude Code", "Chat Completions")
def test_claude_code_in_terminal_runs_tool_call(tmp_path: Path) -> None:
    """First start in a folder: no page about a safety check, the tool call runs, and the model uses its result."""
    folder = agents.folder_of(tmp_path)
    script = Calling("Bash", {"command": "cat notes.txt", "description": "Shows a file"}, pauses=False)
    with (
        in_thread(script) as url,
        Terminal(command("claude", url), environment(tmp_path, offline.claude_code()), folder) as terminal,
    ):
        first_use.first_start(terminal)
        assert "auto mode" not in terminal.text
        assert "asks before it edits a file or runs a command" in terminal.output
        terminal.settle()
        terminal.type(PROMPT)
        terminal.settle()
        terminal.type("\r")
        terminal.wait_for(lambda screen: "Do you want to proceed?" in screen or "● pomegranate" in screen)
        if "Do you want to proceed?" in terminal.text:
            terminal.settle()
            terminal.type("\r")
        screen = terminal.wait_for("● pomegranate")
    assert "check actions" not in screen
    assert (script.called().name, script.result().strip()) == ("Bash", "pomegranate")
