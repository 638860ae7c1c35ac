"""The first use of a new user: `dragoman run claude` in a terminal, "hello", then a file that a tool reads.

    python -m bench.first_use [--record] [--session NAME]

    run-claude         "hello", then a question about a file
    run-claude-file    the question about the file as the first message

Claude Code and the model are real and run on this machine. The home of each session is empty, so all questions of a
first start are asked and answered. Only loopback is reachable, if the system allows that. `--record` stores the
terminal's output (asciicast v2) in tests/data/recordings/NAME.cast if all responses arrived within their limits. The
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
COMMAND_LINE: Final = f"dragoman pull {MODEL} && dragoman run claude"
HOME: Final = Path("/tmp/ada")
"""The home folder that recordings show, equal on each machine."""
NOTES: Final = "Meet Ada at the lighthouse on Tuesday."
START_S: Final = 180.0
ANSWER: Final = re.compile(r"^● (?!Read|Reading|Bash)\S.*(?:\n+ {2}(?!Read|Reading|Bash)\S.*)*", re.MULTILINE)
"""The model's text as Claude Code shows it: a line after a dot, and the indented lines below it."""
READ: Final = re.compile(r"^(●|  )\s?(Read \d+ files?|Read\()", re.MULTILINE)
"""Claude Code's line about a file that its tool has read."""
_IN_NETWORK: Final = """
import os, sys
sys.path.insert(0, sys.argv[1])
from bench import offline
offline.loopback_up()
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Question(NamedTuple):
    """The line to type."""

    text: str
    expected: str
    """Text that the response must contain."""
    limit_s: float
    """Time limit of the response, in seconds."""
    reads: bool = False
    """Whether the response needs the tool that reads files."""


HELLO: Final = Question("hello", "", 90.0)
FILE: Final = Question("What does the file notes.txt say?", "lighthouse", 180.0, reads=True)
SESSIONS: Final = {"run-claude": (HELLO, FILE), "run-claude-file": (FILE,)}
"""Questions by the name of the recording."""


@contextmanager
def home() -> Iterator[dict[str, str]]:
    """Creates an empty home with `dragoman` and `claude` in its path; returns the user's environment."""
    HOME.mkdir()  # fails if it exists: it may belong to another user
    try:
        programs = HOME / ".local" / "bin"
        programs.mkdir(parents=True)
        command = programs / "dragoman"
        command.write_text(f"#!{sys.executable}\nimport sys\nfrom dragoman.cli import main\nsys.exit(main())\n")
        command.chmod(0o755)
        (programs / "claude").symlink_to(offline.claude_code())
        weights_folder = HOME / ".cache" / "dragoman" / "weights"
        weights_folder.mkdir(parents=True)
        for file in (weights.cache_dir() / "weights").glob(f"{MODEL}*"):
            (weights_folder / file.name).symlink_to(file)
        work = HOME / "work"
        work.mkdir()
        (work / "notes.txt").write_text(f"{NOTES}\n")
        path = f"{programs}:{Path(sys.executable).parent}:{os.defpath}"
        source = str(Path(__file__).parent.parent / "src")
        yield {"HOME": str(HOME), "PATH": path, "PYTHONPATH": source, "PWD": str(work), "LANG": "C.UTF-8"}
    finally:
        shutil.rmtree(HOME)


def first_start(terminal: Terminal, deadline_s: float = START_S) -> None:
    """Answers Claude Code's questions at its first start in a folder, until its prompt appears."""
    answers = {"Choose the text style": "\r", "Press Enter to continue": "\r", "Yes, I trust this folder": "\x1b[B|\r"}
    while True:
        screen = terminal.wait_for(lambda text: any(each in text for each in (*answers, "mode on")), deadline_s)
        if "mode on" in screen:
            return
        prompt = next(each for each in answers if each in screen)
        terminal.settle()
        for key in answers.pop(prompt).split("|"):
            terminal.type(key)
            terminal.settle()


def answer(screen: str, question: Question, answers_before: int = 0) -> str:
    """Returns the lines of the screen that answer the question; empty if there are none yet.

    Args:
        screen: The text of the terminal.
        question: What was typed.
        answers_before: The number of answers that the screen had before.
    """
    text = "\n".join(ANSWER.findall(screen)[answers_before:])
    done = question.expected.lower() in text.lower() and (not question.reads or READ.search(screen))
    return text if done else ""


def ask(terminal: Terminal, question: Question) -> float:
    """Types the question and waits for its answer, at most three times its limit.

    Returns: the seconds it took.

    Raises: AssertionError: the answer is missing or wrong; the message contains the screen.
    """
    text = question.text
    terminal.settle()
    terminal.mark(text)
    terminal.type(text)
    terminal.settle()
    before = len(ANSWER.findall(terminal.text))
    terminal.type("\r")
    began_s = time.monotonic()
    approved = False

    def has_ended(screen: str) -> bool:
        nonlocal approved
        if "Do you want to" in screen and not approved:
            approved = True
            terminal.settle()
            terminal.type("\r")
        return "esc to interrupt" not in screen and len(ANSWER.findall(screen)) > before

    terminal.wait_for(has_ended, 3 * question.limit_s)
    duration_s = time.monotonic() - began_s
    terminal.settle(1.0)
    assert answer(terminal.text, question, before), f"no answer to {text!r}:\n{terminal.text}"
    return duration_s


def run_session(name: str, record: bool) -> int:
    """Runs one session; returns the exit status."""
    prefix = [*offline.separate_network(), sys.executable, "-P", "-c", _IN_NETWORK, str(Path(__file__).parent.parent)]
    questions = SESSIONS[name]
    load, facts = os.getloadavg()[0], list[str]()
    with home() as environ:
        terminal = Terminal([*prefix, "sh", "-c", COMMAND_LINE], environ, HOME / "work")
        with terminal:
            try:
                first_start(terminal)
                facts.append(f"ready after {terminal.seconds:.0f} s")
                seconds = [ask(terminal, question) for question in questions]
            except AssertionError as error:
                print(error)
                return 1
            facts += [f"{each.text!r} {s:.0f} s" for each, s in zip(questions, seconds, strict=True)]
            print(terminal.text)
            terminal.type("/exit")
            terminal.settle()
            terminal.type("\r")
            terminal.wait_end()
        facts.append(
            f"{terminal.cpu_s():.0f} CPU s; load {load:.1f} to {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        )
        summary = "; ".join(facts)
        print(summary)
        late = any(s > each.limit_s for each, s in zip(questions, seconds, strict=True))
        if record and not late:
            RECORDINGS.mkdir(parents=True, exist_ok=True)
            path = RECORDINGS / f"{name}.cast"
            terminal.save(path, f"{COMMAND_LINE}  ({summary})", {str(Path(__file__).parent.parent): "/src"})
    return int(late)


def main() -> int:
    """Parses the arguments and runs the sessions."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_use", description=__doc__)
    parser.add_argument("--record", action="store_true", help="store the terminal's output")
    parser.add_argument("--session", choices=SESSIONS, action="append", help="only this one (default: all)")
    args = parser.parse_args()
    return max([run_session(name, args.record) for name in args.session or SESSIONS])


if __name__ == "__main__":
    sys.exit(main())
