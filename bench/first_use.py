"""The first use as a new user has it: `dragoman run claude` in a terminal, "hello" typed, then a file read by a tool.

    python -m bench.first_use [--record] [--session NAME]

    run-claude         "hello", then a question about a file
    run-claude-file    the question about the file as the first message

Claude Code is the real one and so is the model, on this machine; the home of each session is empty, so all questions of
a first start are asked and answered. Nothing but loopback can be reached where the system allows that. `--record` keeps
what the terminal showed (asciicast v2) in tests/data/recordings/NAME.cast, if all answers came within their limits. The
exit status is 0 if they did in every session.
"""

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import offline
from bench.terminal import Terminal
from dragoman.backends.embedded import weights

RECORDINGS: Final = Path(__file__).parent.parent / "tests" / "data" / "recordings"
MODEL: Final = "qwen2.5-coder-1.5b"
LINE: Final = f"dragoman pull {MODEL} && dragoman run claude"
HOME: Final = Path("/tmp/ada")
"""What the recording shows for a home: the same for everyone who makes it."""
NOTES: Final = "Meet Ada at the lighthouse on Tuesday."
START_S: Final = 180.0
ANSWER: Final = re.compile(r"^● (?!Read|Reading|Bash)\S.*(?:\n+ {2}(?!Read|Reading|Bash)\S.*)*", re.MULTILINE)
"""What the model said, as Claude Code shows it: a line after a dot, and those below it that are indented."""
READ: Final = re.compile(r"^(●|  )\s?(Read \d+ files?|Read\()", re.MULTILINE)
"""A line of Claude Code's about a file that its tool has read."""
_APART: Final = """
import os, sys
sys.path.insert(0, sys.argv[1])
from bench import offline
offline.loopback_up()
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Question(NamedTuple):
    """A line that is typed."""

    words: str
    wanted: str
    """In the answer."""
    limit_s: float
    """Time for the answer."""
    reads: bool = False
    """Whether the answer needs the tool that reads files."""


HELLO: Final = Question("hello", "", 90.0)
FILE: Final = Question("What does the file notes.txt say?", "lighthouse", 180.0, reads=True)
SESSIONS: Final = {"run-claude": (HELLO, FILE), "run-claude-file": (FILE,)}
"""What is typed, by the name of the recording."""


@contextmanager
def home() -> Iterator[dict[str, str]]:
    """An empty home with `dragoman` and `claude` in its path; the environment of who lives there."""
    HOME.mkdir()  # fails where there is one: it may belong to another user
    try:
        programs = HOME / ".local" / "bin"
        programs.mkdir(parents=True)
        command = programs / "dragoman"
        command.write_text(f"#!{sys.executable}\nimport sys\nfrom dragoman.cli import main\nsys.exit(main())\n")
        command.chmod(0o755)
        (programs / "claude").symlink_to(offline.claude_code())
        kept = HOME / ".cache" / "dragoman" / "weights"
        kept.mkdir(parents=True)
        for file in (weights.cache_dir() / "weights").glob(f"{MODEL}*"):
            (kept / file.name).symlink_to(file)
        work = HOME / "work"
        work.mkdir()
        (work / "notes.txt").write_text(f"{NOTES}\n")
        path = f"{programs}:{Path(sys.executable).parent}:{os.defpath}"
        source = str(Path(__file__).parent.parent / "src")
        yield {"HOME": str(HOME), "PATH": path, "PYTHONPATH": source, "PWD": str(work), "LANG": "C.UTF-8"}
    finally:
        shutil.rmtree(HOME)


def first_start(terminal: Terminal, deadline_s: float = START_S) -> None:
    """Answer what Claude Code asks at its first start in a folder, until its prompt is there."""
    answers = {"Choose the text style": "\r", "Press Enter to continue": "\r", "Yes, I trust this folder": "\x1b[B|\r"}
    while True:
        screen = terminal.wait_for(lambda text: any(each in text for each in (*answers, "mode on")), deadline_s)
        if "mode on" in screen:
            return
        asked = next(each for each in answers if each in screen)
        terminal.settle()
        for key in answers.pop(asked).split("|"):
            terminal.type(key)
            terminal.settle()


def answer(screen: str, question: Question, answers_before: int = 0) -> str:
    """Returns the lines of the screen that answer the question; "" where they are not there yet.

    Args:
        screen: The text of the terminal.
        question: What was typed.
        answers_before: The number of answers that the screen had before.
    """
    said = "\n".join(ANSWER.findall(screen)[answers_before:])
    done = question.wanted.lower() in said.lower() and (not question.reads or READ.search(screen))
    return said if done else ""


def ask(terminal: Terminal, question: Question) -> float:
    """Types the question and waits for its answer, at most three times its limit.

    Returns: the seconds it took.

    Raises: AssertionError: there is no answer by then, or another one; the message has the screen.
    """
    words = question.words
    terminal.settle()
    terminal.mark(words)
    terminal.type(words)
    terminal.settle()
    before = len(ANSWER.findall(terminal.text))
    terminal.type("\r")
    began_s = time.monotonic()
    approved = False

    def ended(screen: str) -> bool:
        nonlocal approved
        if "Do you want to" in screen and not approved:
            approved = True
            terminal.settle()
            terminal.type("\r")
        return "esc to interrupt" not in screen and len(ANSWER.findall(screen)) > before

    terminal.wait_for(ended, 3 * question.limit_s)
    took_s = time.monotonic() - began_s
    terminal.settle(1.0)
    assert answer(terminal.text, question, before), f"no answer to {words!r}:\n{terminal.text}"
    return took_s


def play(name: str, record: bool) -> int:
    """Runs one session; returns the exit status."""
    apart = [*offline.unshared(), sys.executable, "-P", "-c", _APART, str(Path(__file__).parent.parent)]
    questions = SESSIONS[name]
    load, took = os.getloadavg()[0], list[str]()
    with home() as environ:
        terminal = Terminal([*apart, "sh", "-c", LINE], environ, HOME / "work")
        with terminal:
            try:
                first_start(terminal)
                took.append(f"ready after {terminal.seconds:.0f} s")
                seconds = [ask(terminal, question) for question in questions]
            except AssertionError as error:
                print(error)
                return 1
            took += [f"{each.words!r} {s:.0f} s" for each, s in zip(questions, seconds, strict=True)]
            print(terminal.text)
            terminal.type("/exit")
            terminal.settle()
            terminal.type("\r")
            terminal.ended()
        took.append(
            f"{terminal.cpu_s():.0f} CPU s; load {load:.1f} to {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        )
        print(facts := "; ".join(took))
        late = any(s > each.limit_s for each, s in zip(questions, seconds, strict=True))
        if record and not late:
            RECORDINGS.mkdir(parents=True, exist_ok=True)
            path = RECORDINGS / f"{name}.cast"
            terminal.save(path, f"{LINE}  ({facts})", {str(Path(__file__).parent.parent): "/src"})
    return int(late)


def main() -> int:
    """Parses the arguments and runs the sessions."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_use", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep what the terminal showed")
    parser.add_argument("--session", choices=SESSIONS, action="append", help="this one alone (default: each)")
    args = parser.parse_args()
    return max([play(name, args.record) for name in args.session or SESSIONS])


if __name__ == "__main__":
    sys.exit(main())
