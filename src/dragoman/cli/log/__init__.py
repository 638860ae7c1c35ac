"""`dragoman log`: lists, follows and shows recorded exchanges."""

import argparse
from pathlib import Path
from typing import Final

from dragoman.cli._records.database import add_records_flags
from dragoman.cli._records.time_range import TIME_HELP

_EXAMPLES: Final = """
    examples:
      dragoman log
      dragoman log -f --failed
      dragoman log --model 'qwen*' --tool edit --since 2h
      dragoman log 3f2a9c51          one exchange, with its tool calls
      dragoman log 3f2a9c51 --replay

    exit status:
      0  success
      1  there are no records, no such exchange, or the database cannot be read
      2  the command or its settings are invalid
"""
_FILTERS: Final = ("model", "upstream", "agent", "key", "status")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "log",
        help="list, follow or show recorded exchanges",
        description="List the last recorded exchanges: a client's request, the resulting requests to models, and the "
        "response. With an ID, show one of them with its tool calls. Content is not recorded; `dragoman serve "
        "--capture DIR` captures it, for the command replay.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "id", nargs="?", metavar="ID", help="id of an exchange (header x-request-id), or its first characters"
    )
    command.add_argument("-f", "--follow", action="store_true", help="continue, and print new exchanges as they end")
    for name in _FILTERS:
        command.add_argument(
            f"--{name}", metavar="PATTERN", help=f"only exchanges whose {name} is this; * stands for any characters"
        )
    command.add_argument("--tool", metavar="PATTERN", help="only exchanges with a call of this tool")
    command.add_argument(
        "--failed", action="store_true", help="only exchanges with an error, or with a tool call that failed"
    )
    command.add_argument("--since", metavar="TIME", help=f"only exchanges that ended since: {TIME_HELP}")
    command.add_argument("--limit", type=int, metavar="N", default=20, help="number of exchanges (default: 20)")
    command.add_argument("--json", action="store_true", help="print a JSON object for each exchange, one in a line")
    command.add_argument("--replay", action="store_true", help="replay the exchange of ID, if it was captured")
    command.add_argument(
        "--captures", type=Path, metavar="DIR", help="folder of the captures (default: the setting capture.dir)"
    )
    add_records_flags(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the exchanges.

    Raises:
        ConfigError: an option is wrong.
        UnreadableRecordsError: the database cannot be read, or there is no such exchange.
    """
    from dragoman.cli.log import listing, one_exchange

    return one_exchange.run(args) if args.id else listing.run(args)
