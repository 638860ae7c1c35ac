"""The program of an MCP server: reports its process id on standard error, then runs the program in its place.

The SDK starts programs, but does not return their ids; see `connection`.
"""

import os
import signal
import sys

_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


def run_program() -> None:
    """Replaces this process by the program of the command line."""
    os.write(sys.stderr.fileno(), b"%d\n" % os.getpid())
    for name in _IGNORED_BY_PYTHON:  # else the program would ignore them, too
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"cannot run {sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    run_program()
