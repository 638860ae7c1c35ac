"""The first use as a new user has it: `dragoman run claude` in a terminal, "hello" typed, then a file read by a tool.

    python -m bench.first_use [--record] [--hello]

Claude Code is the real one and so is the model, on this machine; the home is empty, so all questions of a first start
are asked and answered. Nothing but loopback can be reached where the system allows that. `--record` keeps what the
terminal showed (asciicast v2) in tests/data/recordings. The exit status is 0 if both answers came within their limits.
"""

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import offline
from bench.terminal import Terminal
from dragoman.backends import weights

RECORDING: Final = Path(__file__).parent.parent / "tests" / "data" / "recordings" / "run-claude.cast"
MODEL: Final = "qwen2.5-coder-1.5b"
LINE: Final = f"dragoman pull {MODEL} && dragoman run claude"
HOME: Final = Path("/tmp/ada")
"""What the recording shows for a home: the same for everyone who makes it."""
NOTES: Final = "Meet Ada at the lighthouse on Tuesday."
START_S: Final = 180.0
ANSWER: Final = re.compile(r"^● (?!Read|Reading|Bash)\S.*$", re.MULTILINE)
"""A line of Claude Code's that the model said."""
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


QUESTIONS: Final = (
    Question("hello", "", 90.0),
    Question("read notes.txt and say what it holds", "lighthouse", 180.0),
)


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
        for file in (weights.home() / "weights").glob(f"{MODEL}*"):
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


def ask(terminal: Terminal, words: str, wanted: str, limit_s: float) -> float:
    """Type a line and wait until an answer with the wanted text is there; the seconds that took."""
    terminal.settle()
    terminal.mark(words)
    terminal.type(words)
    terminal.settle()
    before = len(ANSWER.findall(terminal.text))
    terminal.type("\r")
    began_s = time.monotonic()
    approved = False

    def answered(screen: str) -> bool:
        nonlocal approved
        if "Do you want to" in screen and not approved:
            approved = True
            terminal.settle()
            terminal.type("\r")
        said = ANSWER.findall(screen)
        working = "esc to interrupt" in screen
        return not working and len(said) > before and wanted.lower() in "\n".join(said[before:]).lower()

    terminal.wait_for(answered, 2 * limit_s)
    return time.monotonic() - began_s


def play(record: bool, questions: Sequence[Question] = QUESTIONS) -> int:
    """One run; the exit status."""
    apart = [*offline.unshared(), sys.executable, "-P", "-c", _APART, str(Path(__file__).parent.parent)]
    load, took = os.getloadavg()[0], list[str]()
    with home() as environ:
        terminal = Terminal([*apart, "sh", "-c", LINE], environ, HOME / "work")
        with terminal:
            try:
                first_start(terminal)
                took.append(f"ready after {terminal.seconds:.0f} s")
                seconds = [ask(terminal, *question) for question in questions]
            except AssertionError as error:
                print(error)
                return 1
            took += [f"{each.words!r} {s:.0f} s" for each, s in zip(questions, seconds, strict=True)]
            terminal.settle(1.0)
            print(terminal.text)
            terminal.type("/exit")
            terminal.settle()
            terminal.type("\r")
            terminal.ended()
        took.append(
            f"{terminal.cpu_s():.0f} CPU s; load {load:.1f} to {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
        )
        print(facts := "; ".join(took))
        if record:
            RECORDING.parent.mkdir(parents=True, exist_ok=True)
            terminal.save(RECORDING, f"{LINE}  ({facts})", {str(Path(__file__).parent.parent): "/src"})
    return int(any(s > each.limit_s for each, s in zip(questions, seconds, strict=True)))


def main() -> int:
    """Parse the arguments and play."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_use", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep what the terminal showed")
    parser.add_argument("--hello", action="store_true", help="leave out the question about the file")
    args = parser.parse_args()
    return play(args.record, QUESTIONS[:1] if args.hello else QUESTIONS)


if __name__ == "__main__":
    sys.exit(main())
