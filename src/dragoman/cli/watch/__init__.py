"""`dragoman watch`: the exchanges of a running gateway at the terminal, as they begin, change and end."""

import argparse
import asyncio
from typing import Final

from dragoman.cli._common import add_config_flag, add_gateway_flag, require_extras

_EXAMPLES: Final = """
    keys:
      arrows, Enter  choose an exchange, show its details
      /              filter by words     f   failed exchanges only
      s              failed ones first   Space  pause
      c              capture the text of exchanges in the memory of the gateway
      Esc            all exchanges       q   quit

    examples:
      dragoman watch
      dragoman watch --gateway http://10.0.0.5:8484 --failed
      dragoman watch --plain claude | tee watch.log

    exit status:
      0  the user ended it
      1  no gateway runs, or it failed
      2  the gateway has no console, needs an admin key, or an extra is missing
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "watch",
        help="watch the exchanges of a running gateway live",
        description="List the exchanges of a running gateway at the terminal, as they begin, change and end: agent, "
        "model and upstream, tokens, times, and the outcomes of tool calls. Enter shows the details of one, with the "
        "model's text if it is captured. Without a terminal, or with --plain, one line is printed for each exchange "
        "that ends, as by `dragoman log --follow`; this also works on another machine than the gateway's.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "words", nargs="*", metavar="WORD", help="only exchanges with all these words, such as an agent, model or tool"
    )
    command.add_argument(
        "--failed", action="store_true", help="only exchanges with an error, or with a tool call that failed"
    )
    command.add_argument("--plain", action="store_true", help="print one line for each exchange that ends")
    command.add_argument("--json", action="store_true", help="as --plain, with a JSON object in each line")
    add_gateway_flag(command)
    add_config_flag(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Follows the exchanges until the user ends it.

    Raises:
        DragomanError: no gateway responds, it has no console, or an extra is missing.
    """
    require_extras("server", doing="watching a gateway")
    from dragoman.cli.models.loaded import gateway_address, load_settings
    from dragoman.cli.watch.feed import TrafficFeed
    from dragoman.cli.watch.plain import has_screen, print_exchanges

    query, is_plain = " ".join(args.words), args.plain or args.json or not has_screen()
    if not is_plain:
        require_extras("console", doing="watching on a screen (--plain needs less)")
    feed = TrafficFeed(gateway_address(args, load_settings(args)))
    asyncio.run(feed.check())
    if is_plain:
        asyncio.run(print_exchanges(feed, query, only_failed=args.failed, is_json=args.json))
        return 0
    from dragoman.cli.watch.screen import WatchApp

    return WatchApp(feed, query, only_failed=args.failed).run() or 0
