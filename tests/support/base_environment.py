"""A Python environment with only the base install, and the `dragoman` command in it."""

import subprocess
import sys

from dragoman import extras


def hide_extras(*installed: str) -> str:
    """Returns the beginning of a program for which only these modules of the extras are installed."""
    modules = {"uvloop", *(module for modules in extras.PACKAGES.values() for module in modules)} - {*installed}
    return f"""
import sys
extras = {sorted(modules)}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ImportError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Missing())
"""


def command(*installed: str) -> str:
    """Returns a program that is the `dragoman` command for which only these modules of the extras are installed."""
    return f"{hide_extras(*installed)}\nfrom dragoman.cli import main\nsys.exit(main(sys.argv[1:]))\n"


def dragoman(*args: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", command(), *args], input=text, capture_output=True, text=True, timeout=60
    )
