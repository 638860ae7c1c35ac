"""`dragoman help`: the help of a command."""

import argparse

from dragoman import cli

_EXAMPLES = """
    examples:
      dragoman help         list all commands
      dragoman help serve   describe one command, like `dragoman serve --help`

    exit status:
      0  the help was printed
      2  there is no such command
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "help", help="show the help of a command", description="Show the help of a command.", epilog=_EXAMPLES
    )
    command.add_argument(
        "topic",
        nargs="*",
        metavar="COMMAND",
        help="command, or its own command: models ps (default: list all)",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the help, and exits with status 0; with 2 if there is no such command."""
    cli.parser().parse_args([*args.topic, "--help"])
    return 0
