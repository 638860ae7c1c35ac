"""Records terminal images for the pages: the real output of commands, with its colours, as SVG with selectable text.

    python docs/pictures.py            all images, into docs/pictures
    python docs/pictures.py doctor     one image

Each command runs in a pseudo-terminal with its own home directory, and is recorded in asciinema's format; termtosvg
renders the image, which loads nothing. An image that would show this machine's name, the user's home or the project's
path is not written. Animated images show the commands being typed, and their output with its timing.
"""

import fcntl
import json
import os
import pty
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select

import pyte

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "pictures"
HOME = Path("/tmp/ada")
"""The home directory in the images, the same on every machine."""
COLUMNS = 100
ROWS = 200
"""Height of the terminal; the image has only the rows that were used."""
DEADLINE_S = 300.0
KEY_S = 0.04
PROMPT = "\x1b[1;34m$\x1b[0m "
LONGEST_PAUSE_MS = 2000
LAST_MS = 5000
"""How long an animated image shows its last frame."""
# fmt: off
THEME = {"fg": "#d8dee9", "bg": "#1e222a", "palette": ":".join((
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#7f8796", "#ff7b86", "#b5e890", "#ffd68a", "#82c4ff", "#dd96f0", "#74d6e0", "#ffffff",
))}
# fmt: on
Event = tuple[float, str]
"""The time since the beginning in seconds, and the output for the terminal."""


@dataclass(frozen=True)
class Picture:
    """What an image shows."""

    commands: tuple[str, ...]
    """Commands as they are typed; each is one program with its arguments, because no shell runs them."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the working directory, by name."""
    weights: tuple[str, ...] = ()
    """Embedded models that the user has downloaded."""
    moves: bool = False
    rows: int = ROWS
    """Height of the terminal, for programs that fill the screen."""


REPLY = """\
<think>A report, then its test.</think>I will write both.
<tool_call>
{"name": "write_file", "arguments": {"path": "end.py", "text": "TAG = '</tool_call>'\\n"}}
</tool_call>
<tool_call>
{"name": "run_tests", "arguments": {"only": "test_end"
"""

PICTURES = {
    "explain": Picture(
        ("cat reply.txt", "dragoman parse --explain --truncated reply.txt"),
        files={"reply.txt": REPLY},
        moves=True,
    ),
    "doctor": Picture(("dragoman doctor",), weights=("smollm2-135m",)),
    "models": Picture(
        ("dragoman models", "dragoman models show smollm2"), weights=("smollm2-135m", "qwen2.5-coder-1.5b")
    ),
    "init": Picture(("dragoman init --yes --no-measure",), weights=("smollm2-135m",)),
    "ask": Picture(
        ("dragoman ask 'What is the weather in Paris?' --model qwen2.5-coder-1.5b",),
        weights=("qwen2.5-coder-1.5b",),
        moves=True,
    ),
}


@contextmanager
def home(picture: Picture) -> Iterator[dict[str, str]]:
    """Creates the home directory of an image, with this tree's `dragoman`, and yields the environment."""
    HOME.mkdir()  # fails if it exists: it might be a real one
    try:
        programs = HOME / ".local" / "bin"
        programs.mkdir(parents=True)
        (HOME / ".venv").symlink_to(sys.prefix)
        python = HOME / ".venv" / "bin" / "python"
        command = programs / "dragoman"
        command.write_text(f"#!{python}\nimport sys\nfrom dragoman.cli import main\nsys.exit(main())\n")
        command.chmod(0o755)
        kept = HOME / ".cache" / "dragoman" / "weights"
        kept.mkdir(parents=True)
        for model in picture.weights:
            (kept / f"{model}.gguf").symlink_to(Path.home() / ".cache" / "dragoman" / "weights" / f"{model}.gguf")
        folder = HOME / "work"
        folder.mkdir()
        for name, text in picture.files.items():
            (folder / name).write_text(text)
        yield {
            "HOME": str(HOME),
            "PATH": f"{programs}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT / "src"),
            "PWD": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
    finally:
        shutil.rmtree(HOME)


def recorded(picture: Picture) -> list[Event]:
    """Runs the commands, and returns their output for the terminal."""
    events: list[Event] = []
    now_s = 0.0
    with home(picture) as environ:
        for line in picture.commands:
            events.append((now_s, PROMPT))
            for key in line:
                now_s += KEY_S
                events.append((now_s, key))
            events.append((now_s, "\r\n"))
            begun_s = now_s
            for after_s, text in run(shlex.split(line), environ, picture.rows):
                now_s = begun_s + after_s
                events.append((now_s, text))
        events.append((now_s, PROMPT))
    return events


def run(command: Sequence[str], environ: Mapping[str, str], rows: int) -> Iterator[Event]:
    """Yields what a program writes to its own terminal."""
    program = shutil.which(command[0], path=environ["PATH"])
    if program is None:
        raise SystemExit(f"the image needs the program {command[0]!r}; `make test-clients` installs the agents")
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        os.chdir(environ["PWD"])
        os.execve(program, list(command), dict(environ))
    begun_s = time.monotonic()
    try:
        while time.monotonic() - begun_s < DEADLINE_S:
            if not select([terminal], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # on Linux: the program has ended
                break
            if not piece:
                break
            yield round(time.monotonic() - begun_s, 1), piece.decode("utf-8", "replace")
        else:
            os.killpg(child, signal.SIGTERM)
            raise SystemExit(f"{shlex.join(command)} did not end within {DEADLINE_S:.0f} s")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def screen(events: Sequence[Event], rows: int = ROWS) -> list[str]:
    """Returns the lines that are shown at the end."""
    display = pyte.Screen(COLUMNS, rows)
    stream = pyte.Stream(display)
    for _, text in events:
        stream.feed(text)
    return [line.rstrip() for line in display.display[: display.cursor.y + 1]]


def check(events: Sequence[Event]) -> None:
    """Raises SystemExit if an image would show something private, also if a line break splits it."""
    private = {str(Path.home()), str(ROOT), sys.prefix, socket.gethostname()} - {"/", "localhost"}
    shown = "".join(text for _, text in events).replace("\r\n", "")
    for words in private:
        if words in shown:
            raise SystemExit(f"the image would show {words!r}; nothing is written")


def written(picture: Picture, events: Sequence[Event], to: Path) -> None:
    """Writes the image to a file."""
    check(events)
    height = min(len(screen(events, picture.rows)), picture.rows)
    shown = events if picture.moves else [(0.0, "".join(text for _, text in events))]
    header = {"version": 2, "width": COLUMNS, "height": height, "theme": THEME}
    with tempfile.TemporaryDirectory() as scratch:
        cast = Path(scratch) / "cast"
        lines = [header, *([round(at_s, 2), "o", text] for at_s, text in shown)]
        cast.write_text("\n".join(map(json.dumps, lines)) + "\n")
        made = Path(scratch) / ("made.svg" if picture.moves else "made")
        options = ["--theme", "auto", "--template", "window_frame"]
        if picture.moves:
            options += ["--max-frame-duration", str(LONGEST_PAUSE_MS), "--loop-delay", str(LAST_MS)]
        else:
            options.append("--still-frames")
            made.mkdir()
        command = [sys.executable, "-m", "termtosvg", "render", str(cast), str(made), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"termtosvg could not render the image: {done.stderr}")
        to.parent.mkdir(exist_ok=True)
        shutil.copyfile(made if picture.moves else max(made.iterdir()), to)


def main(names: Sequence[str]) -> int:
    """Records the named images, or all; returns the exit status."""
    for name in names or PICTURES:
        if name not in PICTURES:
            raise SystemExit(f"unknown image {name!r}; expected one of {', '.join(PICTURES)}")
        file = FOLDER / f"{name}.svg"
        written(PICTURES[name], recorded(PICTURES[name]), file)
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size // 1000} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
