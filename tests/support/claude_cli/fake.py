"""A fake `claude` that replays a recorded trace, with faults at given lines.

`installed` creates the command `claude` in a folder. At each start it reads its plan there (`plan.json`), and it logs
its input (`log.jsonl`). It writes a line once it has received the input before that line in the recording; the ids of
requests are those of this run. A fault happens before a line: the one with this number, or the first of this kind
(`init`, `content_block_delta`, `tools/list`, `result`, …).

    {"at": "init", "do": "change", "with": {"tools": ["Bash"]}}
    {"at": 7, "do": "exit", "with": 1}

It runs with the tests' Python and only the standard library, since the tests start hundreds of processes; what
it needs for few of them only, or for its types, it imports late or not at all.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

VERSION = "2.1.329 (Claude Code)"
LAUNCHER = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
import fake
sys.exit(fake.main())
"""
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", file=sys.stderr, flush=True)
while True:
    signal.pause()
"""


def installed(folder: Path) -> Path:
    """Creates the command in this folder, and returns its path."""
    command = folder / "claude"
    command.write_text(LAUNCHER.format(python=sys.executable, here=os.path.dirname(__file__)))
    command.chmod(0o755)
    return command


def plan(command: Path, trace: Path, *faults: dict[str, Any]) -> None:
    """Sets the trace and faults from the next start on."""
    (command.parent / "plan.json").write_text(json.dumps({"trace": str(trace), "faults": faults}))


def log(command: Path) -> list[dict[str, Any]]:
    """Returns the log so far, with process ids: `started` (arguments and environment), `told` (an input line),
    the id of a `child`, or a `bug` of the fake."""
    file = command.parent / "log.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def said(trace: Path) -> list[Any]:
    """The lines of the CLI in a trace."""
    return [line["cli"] for line in map(json.loads, trace.read_text().splitlines()) if "cli" in line]


def words(line: Any) -> set[str]:
    """The kinds of a line: its type, subtype, and the event type or request method in it."""
    inner = ""
    match line.get("type"):
        case "stream_event":
            inner = line["event"]["type"]
        case "control_request":
            inner = line["request"].get("message", {}).get("method")
    return {word for word in (line.get("type"), line.get("subtype"), inner) if word}


class Player:
    """One process of the fake CLI."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, "plan.json")) as plan:
            told = json.load(plan)
        with open(told["trace"], encoding="utf-8") as trace:
            self._steps = [json.loads(line) for line in trace]
        self._faults: list[dict[str, Any]] = told["faults"]
        self._log = open(os.path.join(folder, "log.jsonl"), "a")  # noqa: SIM115 until it ends
        self._asked = ""
        """The id of the last request that it received."""
        self._early: list[str] = []
        """Types of lines received before it waited for them."""
        self.note("started", {"arguments": sys.argv[1:], "environment": dict(os.environ)})

    def note(self, what: str, value: object) -> None:
        self._log.write(json.dumps({"pid": os.getpid(), what: value}) + "\n")
        self._log.flush()

    def play(self) -> int:
        """Its exit status."""
        number, silent = 0, set[object]()
        for step in self._steps[1:-1]:
            if "cli" in step:
                line = step["cli"]
                silent |= self._unanswered(line)
                self._say(number, line)
                number += 1
            elif "us" in step and step["us"].get("response", {}).get("request_id") not in silent:
                self._wait(step["us"]["type"])
        for _ in self._told():
            pass
        return int(self._steps[-1]["exit"])

    def _unanswered(self, line: Any) -> set[object]:
        """The kinds of a request to which MCP has no response."""
        if line["type"] != "control_request" or "id" in line["request"]["message"]:
            return set()
        return {line["request_id"]}

    def _told(self) -> Iterator[Any]:
        for text in sys.stdin.buffer:
            line = json.loads(text)
            self.note("told", line)
            yield line

    def _wait(self, kind: str) -> None:
        """Waits for an input line of this type; others are queued."""
        if kind in self._early:
            self._early.remove(kind)
            return
        for line in self._told():
            if line["type"] == "control_request":
                self._asked = line["request_id"]
                if line["request"]["subtype"] != "initialize":
                    self._agree()
                    continue
            if line["type"] == kind:
                return
            self._early.append(line["type"])
        sys.exit(0)

    def _agree(self) -> None:
        """Confirms a settings request, which is not in the recordings."""
        response = {"subtype": "success", "request_id": self._asked}
        write(json.dumps({"type": "control_response", "response": response}).encode() + b"\n")

    def _say(self, number: int, line: Any) -> None:
        if line["type"] == "control_response":
            line["response"]["request_id"] = self._asked
        for fault in list(self._faults):
            if fault["at"] == number or fault["at"] in words(line):
                self._faults.remove(fault)
                made = FAULTS[fault["do"]](self, line, fault.get("with"))
                if made is None:
                    return
                line = made
        write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _spoil(player: Player, line: Any, raw: str) -> None:
    """Replaces the line by a template such as `before{}after`, where `{}` is the line; each character is one byte."""
    write(raw.encode("latin-1").replace(b"{}", json.dumps(line).encode(), 1) + b"\n")


def _also(player: Player, line: Any, lines: list[Any]) -> Any:
    """Writes other lines first."""
    for other in lines:
        write(json.dumps(other).encode() + b"\n")
    return line


def _noise(player: Player, line: Any, raw: str) -> Any:
    """Writes other bytes first; each character is one byte."""
    write(raw.encode("latin-1") + b"\n")
    return line


def _large(player: Player, line: Any, size: int) -> Any:
    """Writes a line of this many bytes first."""
    write(json.dumps({"type": "system", "subtype": "large", "content": "x" * size}).encode() + b"\n")
    return line


def _change(player: Player, line: Any, members: dict[str, Any]) -> Any:
    """Changes members of the line."""
    return {**line, **members}


def _half(player: Player, line: Any, status: int) -> None:
    """Writes half of the line, then exits."""
    text = json.dumps(line).encode()
    write(text[: len(text) // 2])
    os._exit(status)


def _complain(player: Player, line: Any, raw: str) -> Any:
    """Writes this text to standard error."""
    sys.stderr.write(raw)
    sys.stderr.flush()
    return line


def _exit(player: Player, line: Any, status: int) -> None:
    os._exit(status)


def _kill(player: Player, line: Any, number: int) -> None:
    os.kill(os.getpid(), number)


def _hang(player: Player, line: Any, _: object) -> None:
    while True:
        signal.pause()


def _deaf(player: Player, line: Any, _: object) -> None:
    """Writes the line, then neither reads nor writes."""
    write(json.dumps(line).encode() + b"\n")
    _hang(player, line, _)


def _shut(player: Player, line: Any, _: object) -> None:
    """Closes standard output, but keeps running."""
    os.close(1)
    _hang(player, line, _)


def _stay(player: Player, line: Any, _: object) -> Any:
    """Ignores SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return line


def _child(player: Player, line: Any, _: object) -> Any:
    """Starts a child process that keeps standard output open and ignores SIGTERM."""
    import subprocess

    command = [sys.executable, "-IS", "-c", STUBBORN]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert child.stderr is not None
    child.stderr.readline()
    player.note("child", child.pid)
    return line


FAULTS: dict[str, Callable[[Player, Any, Any], Any]] = {
    "also": _also,
    "change": _change,
    "child": _child,
    "complain": _complain,
    "deaf": _deaf,
    "drop": lambda player, line, _: None,
    "exit": _exit,
    "half": _half,
    "hang": _hang,
    "kill": _kill,
    "large": _large,
    "noise": _noise,
    "shut": _shut,
    "spoil": _spoil,
    "stay": _stay,
}


def main() -> int:
    """Its exit status."""
    if "--version" in sys.argv:
        print(VERSION)
        return 0
    if sys.argv[1:] == ["auth", "status"]:
        print(json.dumps({"loggedIn": True, "authMethod": "api_key", "apiKeySource": "ANTHROPIC_API_KEY"}))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    player = Player(os.path.dirname(sys.argv[0]))
    try:
        return player.play()
    except Exception as error:
        player.note("bug", repr(error))
        raise
