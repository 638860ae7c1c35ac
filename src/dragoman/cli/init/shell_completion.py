"""The line in the shell's startup file that completes `dragoman` at Tab."""

import os
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.cli.completion import SHELLS

_LINES: Final = {
    "bash": 'command -v dragoman >/dev/null && eval "$(dragoman completion bash)"',
    "zsh": "command -v dragoman >/dev/null && { (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; "
    'eval "$(dragoman completion zsh)"; }',
    "fish": "command -q dragoman; and dragoman completion fish | source",
}
"""A shell in which `dragoman` is not installed ignores the line."""


class CompletionLine(NamedTuple):
    """A line to be added to a file."""

    shell: str
    path: Path
    line: str


def find_completion() -> CompletionLine | None:
    """Returns the line for the user's shell; None: the shell is unknown, has the line, or cannot find `dragoman`."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS or not shutil.which("dragoman"):
        return None
    path = Path(SHELLS[shell]).expanduser()
    try:
        if "dragoman completion" in path.read_text(encoding="utf-8", errors="replace"):
            return None
    except FileNotFoundError:
        pass
    except OSError:
        return None
    return CompletionLine(shell, path, _LINES[shell])
