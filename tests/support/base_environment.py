"""A Python environment with only the base install, and the `dragoman` command in it."""

import subprocess
import sys

from dragoman import extras

BLOCK = f"""
import sys
extras = {sorted({"uvloop", *(module for modules in extras.PACKAGES.values() for module in modules)})}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras:
            raise ImportError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Missing())
"""


COMMAND = (
    BLOCK
    + """
from dragoman.cli import main
sys.exit(main(sys.argv[1:]))
"""
)


def dragoman(*args: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *args], input=text, capture_output=True, text=True, timeout=60
    )
