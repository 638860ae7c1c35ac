"""`dragoman version`: the version of Dragoman."""

import argparse

from dragoman import __version__

_EXAMPLES = """
    examples:
      dragoman version   like `dragoman --version`

    exit status:
      0  the version was printed
      2  the command is invalid
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "version", help="print the version", description="Print the version of Dragoman.", epilog=_EXAMPLES
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the version."""
    print(f"dragoman {__version__}")
    return 0
